"""The stored desired states follow from the layers, in the transaction that changes one."""

from dataclasses import replace
from datetime import timedelta

import pytest

from controlplane.contract.messages import DesiredState
from controlplane.domain.canary import Phase
from controlplane.domain.fleet import Mode
from controlplane.services import desired_states
from controlplane.store import canaries as canary_store
from controlplane.store import desired_states as desired_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START
from tests.domain import build as domain

NAMES = ("worker-1", "worker-2", "worker-3")


def put_all(conn: Connection, *names: str, mode: Mode = Mode.ENFORCE) -> None:
    flag_store.put_catalogue(conn, domain.catalogue())
    build.put_fleet(conn, mode=mode)
    for name in names or NAMES:
        build.put_worker(conn, name)


def refresh(conn: Connection, *, seconds: float = 0) -> tuple[str, ...]:
    return desired_states.refresh(conn, fleet=build.FLEET, now=START + timedelta(seconds=seconds))


def stored(conn: Connection, name: str) -> DesiredState:
    state = desired_store.get(conn, worker_id=f"id-{name}")
    assert state is not None
    return state.desired


def promote(conn: Connection) -> None:
    fleet = fleet_store.get(conn, build.FLEET)
    fleet_store.save(conn, replace(fleet, promoted={build.FLAG: build.FUSED}))
    build.put_record(conn)


def test_writing_twice_changes_nothing_the_second_time(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        assert len(refresh(conn)) == len(NAMES)
        before = [stored(conn, name) for name in NAMES]
        assert refresh(conn) == ()
        assert [stored(conn, name) for name in NAMES] == before


def test_a_generation_only_rises(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        refresh(conn)
        first = stored(conn, "worker-1").generation
        promote(conn)
        refresh(conn)
        assert stored(conn, "worker-1").generation > first


def test_a_worker_that_reports_a_higher_generation_is_given_a_higher_one(
    database: Database,
) -> None:
    """A restored database must not issue a generation that its workers refuse."""
    with database.write() as conn:
        put_all(conn)
        report = build.effective(generation=41)
        worker_store.record_effective(conn, worker_id="id-worker-1", report=report, now=START)
        promote(conn)
        refresh(conn)
        assert stored(conn, "worker-1").generation > 41


def test_a_fleet_that_observes_is_left_as_it_is(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, mode=Mode.OBSERVE)
        promote(conn)
        refresh(conn)
        assert {stored(conn, name).flags[build.FLAG] for name in NAMES} == {build.PLAIN}


def test_a_promotion_ramps_and_a_way_back_does_not(database: Database) -> None:
    """60 flips a minute where no policy says otherwise; to the fallback all at once."""
    names = tuple(f"worker-{number:03d}" for number in range(70))
    with database.write() as conn:
        put_all(conn, *names)
        refresh(conn)
        promote(conn)
        assert len(refresh(conn, seconds=1)) == desired_states.DEFAULT_FLIPS_PER_MINUTE
        assert refresh(conn, seconds=2) == ()
        assert len(refresh(conn, seconds=62)) == 10
        fleet = fleet_store.get(conn, build.FLEET)
        fleet_store.save(conn, replace(fleet, stopped_reason="for a test"))
        assert len(refresh(conn, seconds=63)) == len(names)


def expose(conn: Connection, name: str) -> None:
    canary_store.expose(
        conn,
        canary_id="canary-1",
        worker_id=f"id-{name}",
        incarnation=f"incarnation-{name}",
        flag_bytes=0,
        now=START,
    )


@pytest.mark.parametrize("phase", list(Phase))
def test_only_a_running_canary_gives_an_experiment_and_a_lease(
    database: Database, phase: Phase
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_canary(conn, phase=phase)
        expose(conn, "worker-1")
        refresh(conn)
        state = desired_store.get(conn, worker_id="id-worker-1")
        assert state is not None
        is_running = phase in (Phase.PROGRESSING, Phase.BAKING)
        assert (state.desired.experiment is not None) is is_running
        assert (state.canary_id is not None) is is_running
        assert stored(conn, "worker-2").experiment is None


def test_the_experiment_leaves_the_flags_outside_the_arm_as_its_controls_have_them(
    database: Database,
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_canary(conn)
        expose(conn, "worker-1")
        refresh(conn)
        state = stored(conn, "worker-1")
        assert state.experiment is not None
        assert state.flags == stored(conn, "worker-2").flags == {build.FLAG: build.PLAIN}
        assert {arm.name: arm.flags[build.FLAG] for arm in state.experiment.arms} == {
            "canary": build.FUSED
        }


def test_an_exposed_worker_that_comes_back_on_another_stack_leaves_the_experiment(
    database: Database,
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_canary(conn)
        expose(conn, "worker-1")
        refresh(conn)
        again = build.registration(
            worker="worker-1", incarnation="another-life", stack={"torch": "2.14"}
        )
        worker_store.register(conn, registration=again, worker_id="id-worker-1", now=START)
        refresh(conn)
        assert stored(conn, "worker-1").experiment is None


def test_a_promoted_variant_is_not_run_on_a_stack_it_was_not_proven_on(
    database: Database,
) -> None:
    with database.write() as conn:
        put_all(conn)
        again = build.registration(
            worker="worker-2", incarnation="another-life", stack={"torch": "2.14"}
        )
        worker_store.register(conn, registration=again, worker_id="id-worker-2", now=START)
        promote(conn)
        refresh(conn)
        assert stored(conn, "worker-1").flags[build.FLAG] == build.FUSED
        assert stored(conn, "worker-2").flags[build.FLAG] == build.PLAIN


def test_one_worker_is_refreshed_without_the_others(database: Database) -> None:
    """A fleet of a thousand that starts would else write a thousand states a thousand times."""
    with database.write() as conn:
        put_all(conn)
        refresh(conn)
        promote(conn)

        changed = desired_states.refresh_worker(conn, worker_id="id-worker-2", now=START)

        assert changed == ("id-worker-2",)
        assert stored(conn, "worker-2").flags[build.FLAG] == build.FUSED
        assert stored(conn, "worker-1").generation == 1
        assert set(refresh(conn)) == {"id-worker-1", "id-worker-3"}
