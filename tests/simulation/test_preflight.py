"""Preflight on a simulated fleet: who is not shown to be safe meets no viewer, whatever dies."""

import pytest

from controlplane.contract.messages import LengthProbe, ProbeReport
from controlplane.contract.vocabulary import ARM_CANARY
from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, fleets
from controlplane.simulation.worker import Behaviour, SimulatedWorker
from controlplane.store import canaries as canary_store
from controlplane.store import evidence as evidence_store
from controlplane.store import probes as probe_store
from controlplane.store.transaction import Database
from tests.simulation.fleet_of import BEHAVIOURS, FLEET, MIB, Fleet, adopted

FIRST_QUIET_BEAT = 150
FAILED = ["started", "gate_failed", "containment_seen", "verification_seen"]


def probed(fleet: Fleet, name: str) -> SimulatedWorker:
    """The worker that preflight was given, once it is asked."""
    fleet.run_to(name, Phase.PREFLIGHT)
    fleet.world.run(seconds=1)
    with fleet.database.read() as conn:
        (exposure,) = canary_store.exposed(conn, canary_id=fleet.canary(name).id)
    return fleet.world.workers[exposure.worker]


def answers(fleet: Fleet, name: str) -> list[str]:
    """Ids of the probes that were answered."""
    with fleet.database.read() as conn:
        return [one.id for one in probe_store.of_canary(conn, canary_id=fleet.canary(name).id)]


def num_exposed_sessions(fleet: Fleet, name: str) -> int:
    """Sessions that drew an arm of the canary."""
    canary = fleet.canary(name)
    with fleet.database.read() as conn:
        evidence = evidence_store.of_canary(conn, canary=canary, since=canary.created_at)
    return sum(session.arm == ARM_CANARY for session in evidence.sessions)


def test_a_kernel_that_keeps_memory_is_refused_before_any_viewer(database: Database) -> None:
    fleet = adopted(database, seed=21)
    name = fleet.start("fused_all", policy="preflight")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert fleet.events(name) == FAILED
    assert "keeps 16.0 MiB for first-forward length 8" in canary.reason
    assert "verified: nothing of it is left on 1" in canary.reason
    assert num_exposed_sessions(fleet, name) == 0
    assert set(fleet.variants().values()) == {"nccl"}


def test_a_good_kernel_passes_and_is_promoted(database: Database) -> None:
    fleet = adopted(database, seed=22)
    name = fleet.start("fused_steady", policy="preflight")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.PROMOTED, canary.reason
    assert fleet.events(name)[:2] == ["started", "preflight_passed"]
    assert len(answers(fleet, name)) == 1


def test_no_session_is_taken_while_a_worker_is_probed(sqlite_database: Database) -> None:
    fleet = adopted(sqlite_database, seed=23)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    worker.probe_s = 20

    def check() -> None:
        assert worker.probing is None or worker.session is None

    fleet.world.run(seconds=15, check=check)
    assert worker.probing is not None
    fleet.run_to(name, Phase.PROGRESSING)
    fleet.world.run(seconds=2)
    assert worker.session is not None


def test_a_fault_in_preflight_sends_it_back(sqlite_database: Database) -> None:
    behaviours = BEHAVIOURS | {"fused_all": Behaviour(fails_after_lengths=2)}
    fleet = adopted(sqlite_database, seed=24, behaviours=behaviours)
    name = fleet.start("fused_all", policy="preflight")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert "out_of_memory after 2 lengths" in canary.reason


@pytest.mark.parametrize(
    "behaviour", [Behaviour(rollback_ms=5000), Behaviour(left_bytes=MIB)], ids=["slow", "left"]
)
def test_a_way_back_that_is_slow_or_leaves_something_sends_it_back(
    sqlite_database: Database, behaviour: Behaviour
) -> None:
    fleet = adopted(sqlite_database, seed=25, behaviours=BEHAVIOURS | {"fused_steady": behaviour})
    name = fleet.start("fused_steady", policy="preflight")
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert fleet.events(name) == FAILED


def test_a_worker_that_dies_in_preflight_is_probed_again_in_its_next_life(
    sqlite_database: Database,
) -> None:
    fleet = adopted(sqlite_database, seed=26)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    worker.probe_s = 5
    fleet.world.run_until(lambda: worker.probing is not None, within_s=20)
    worker.kill(restart_after_s=2)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED
    assert worker.life == 2


def test_a_worker_that_stays_dead_leaves_the_canary_held_and_its_abort_contained(
    sqlite_database: Database,
) -> None:
    fleet = adopted(sqlite_database, seed=27)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    worker.is_alive = False
    held = fleet.run_to(name, Phase.HELD)
    assert "preflight has no result within 30 s: no report of a probe yet" in held.reason
    with sqlite_database.write() as conn:
        canaries.ask(conn, name, RequestKind.ABORT, act=fleet.act("enough"))
    back = fleet.run_to(name, *TERMINAL)
    assert back.phase is Phase.ROLLED_BACK
    assert f"quarantined: {worker.name}" in back.reason


def test_a_late_answer_decides_a_canary_that_was_held_for_want_of_it(
    sqlite_database: Database,
) -> None:
    behaviours = BEHAVIOURS | {"fused_steady": Behaviour(left_bytes=MIB)}
    fleet = adopted(sqlite_database, seed=28, behaviours=behaviours)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    worker.is_deaf = True  # it does not hear that it is too late
    worker.probe_s = 60
    worker.probing = None
    worker._begin_probe()
    fleet.run_to(name, Phase.HELD)
    back = fleet.run_to(name, Phase.ROLLING_BACK)
    assert "preflight" in back.reason


def test_a_second_answer_changes_nothing(sqlite_database: Database) -> None:
    fleet = adopted(sqlite_database, seed=29)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    fleet.run_to(name, Phase.PROGRESSING)
    (probe,) = answers(fleet, name)
    lengths = [LengthProbe(length=n, retained_bytes=99 * MIB) for n in (8, 24)]
    again = report(worker, fleet, name, probe=probe).model_copy(update={"lengths": lengths})
    fleet.world.probe(worker.identity, again)
    with sqlite_database.read() as conn:
        (kept,) = probe_store.of_canary(conn, canary_id=fleet.canary(name).id)
    assert kept.lengths[8] == 0
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED


def test_an_answer_to_another_probe_is_refused(sqlite_database: Database) -> None:
    fleet = adopted(sqlite_database, seed=30)
    name = fleet.start("fused_steady", policy="preflight")
    worker = probed(fleet, name)
    other = next(one for one in fleet.world.workers.values() if one is not worker)
    asked = f"{fleet.canary(name).id}-{fleet.canary(name).version}"
    for told, by in [
        (report(worker, fleet, name, probe=f"{fleet.canary(name).id}-99"), worker),
        (report(worker, fleet, name, probe="of-nobody-1"), worker),
        (report(worker, fleet, name, probe=asked).model_copy(update={"canary": "none"}), worker),
        (report(other, fleet, name, probe=asked), other),
    ]:
        with pytest.raises(InvalidValueError):
            fleet.world.probe(by.identity, told)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED


@pytest.mark.parametrize("how", ["abort", "stop"])
def test_whoever_ends_a_preflight_leaves_the_worker_verified_and_in_service(
    database: Database, how: str
) -> None:
    fleet = adopted(database, seed=31)
    name = fleet.start("fused_all", policy="preflight")
    worker = probed(fleet, name)
    worker.probe_s = 20
    fleet.world.run_until(lambda: worker.variant == "fused_all", within_s=20)
    with database.write() as conn:
        if how == "abort":
            canaries.ask(conn, name, RequestKind.ABORT, act=fleet.act("enough"))
        else:
            fleets.stop_the_line(conn, FLEET, act=fleet.act("frozen frames"))
    back = fleet.run_to(name, *TERMINAL)
    assert "verified: nothing of it is left on 1" in back.reason
    assert answers(fleet, name) == []
    fleet.world.run(seconds=3)
    assert worker.session is not None


@pytest.mark.parametrize("beat", [1, 2, 3, 4, 5, 7])
@pytest.mark.parametrize("variant", ["fused_steady", "fused_all"])
def test_a_crash_after_any_beat_of_preflight_changes_nothing(
    sqlite_database: Database, beat: int, variant: str
) -> None:
    """It dies after every `beat`-th beat of the preflight, and is left alone at last."""
    fleet = adopted(
        sqlite_database, seed=beat, crashes=lambda num: num % beat == 0 and num < FIRST_QUIET_BEAT
    )
    name = fleet.start(variant, policy="preflight")
    canary = fleet.run_to(name, *TERMINAL, within_s=3000)
    assert fleet.world.num_crashes > 0
    events = fleet.events(name)
    assert events == sorted(set(events), key=events.index)  # nothing happens twice
    assert canary.phase is (Phase.PROMOTED if variant == "fused_steady" else Phase.ROLLED_BACK)
    assert len(answers(fleet, name)) == 1


def test_one_length_only_is_refused_for_want_of_coverage(sqlite_database: Database) -> None:
    fleet = adopted(sqlite_database, seed=32)
    for worker in fleet.world.workers.values():
        worker.lengths = (64,)
    name = fleet.start("fused_steady", policy="coverage")
    held = fleet.run_to(name, Phase.HELD)
    assert held.reason == (
        "still not passing after 18s: coverage: 1 of 8 buckets of first-forward lengths met,"
        " 6 asked for; all of one length, 64, which says nothing of any other"
    )
    for worker in fleet.world.workers.values():
        worker.lengths = (10, 30, 40, 60, 70, 80, 100, 119)
        worker.session_s = 1.5
    for _ in range(5):  # lengths are drawn, so that one turn may not meet six buckets
        with sqlite_database.write() as conn:
            canaries.ask(conn, name, RequestKind.RESUME, act=fleet.act("other viewers"))
        fleet.run_to(name, Phase.PROGRESSING)
        if fleet.run_to(name, Phase.HELD, *TERMINAL).phase in TERMINAL:
            break
    assert fleet.canary(name).phase is Phase.PROMOTED


def report(worker: SimulatedWorker, fleet: Fleet, name: str, *, probe: str) -> ProbeReport:
    """A report that would pass if it were asked for."""
    return ProbeReport(
        incarnation=worker.incarnation,
        probe=probe,
        canary=fleet.canary(name).id,
        lengths=[],
        flag_bytes_before=0,
        rollback_ms=1,
        flag_bytes_left=0,
    )
