"""Generations only rise, whatever was restored or claimed."""

import pytest

from controlplane.contract.messages import Arm, Experiment, FlagReason
from controlplane.domain.errors import NotFoundError, StaleVersionError
from controlplane.store import desired_states as desired_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START

_ID = f"id-{build.WORKER}"


def test_a_desired_state_comes_back_whole(database: Database) -> None:
    arms = [Arm(name="canary", share=1.0, flags={build.FLAG: build.FUSED})]
    reason = FlagReason(flag=build.FLAG, variant=build.PLAIN, layer="fallback", reason="why")
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        canary = build.put_canary(conn)
        experiment = Experiment(canary=canary.id, salt="salt", arms=arms)
        desired = build.desired(experiment=experiment, reasons=[reason], is_admitting=False)
        assert desired_store.get(conn, worker_id=_ID) is None
        desired_store.put(conn, worker_id=_ID, desired=desired, canary_id=canary.id, now=START)
        stored = desired_store.get(conn, worker_id=_ID)
        assert stored is not None
        assert (stored.desired, stored.canary_id) == (desired, canary.id)
        assert desired_store.in_fleet(conn, fleet=build.FLEET) == {_ID: stored}
        worker = worker_store.by_id(conn, _ID)
    assert (worker.desired_generation, worker.desired_flags) == (1, {build.FLAG: build.PLAIN})


def test_a_state_that_is_not_newer_is_refused(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        _put(conn, generation=3)
        for generation in (3, 2):
            with pytest.raises(StaleVersionError):
                _put(conn, generation=generation)


def test_the_next_generation_is_above_what_a_restored_database_has_forgotten(
    database: Database,
) -> None:
    """From a backup of generation 3, a worker at 9 would refuse 4 as old, for ever."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn, generation=2)
        assert desired_store.next_generation(conn, worker_id=_ID) == 3
        _put(conn, generation=3)
        assert desired_store.next_generation(conn, worker_id=_ID) == 4
        build.put_worker(conn, incarnation="second", generation=9)
        assert desired_store.next_generation(conn, worker_id=_ID) == 10
        # What any life has reported counts, also after the next one began at nothing.
        build.put_worker(conn, incarnation="third", generation=0)
        assert desired_store.next_generation(conn, worker_id=_ID) == 10
        report = build.effective(incarnation="third", generation=20)
        worker_store.record_effective(conn, worker_id=_ID, report=report, now=START)
        assert desired_store.next_generation(conn, worker_id=_ID) == 21


def test_an_unknown_worker_has_no_next_generation(database: Database) -> None:
    with database.write() as conn, pytest.raises(NotFoundError):
        desired_store.next_generation(conn, worker_id="nobody")


def _put(conn: Connection, *, generation: int) -> None:
    desired = build.desired(generation)
    desired_store.put(conn, worker_id=_ID, desired=desired, canary_id=None, now=START)
