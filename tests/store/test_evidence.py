"""What a canary is judged on: both arms of its own stratum, and nothing of anybody else's."""

from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome, Reason
from controlplane.domain.canary import Event, Phase
from controlplane.domain.evidence import Evidence
from controlplane.services import ingest
from controlplane.store import canaries as canary_store
from controlplane.store import evidence as evidence_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START, FakeClock

_OTHER = {"torch": "2.14"}


def test_a_session_carries_the_arm_its_record_names(database: Database) -> None:
    _stand(database)
    _send(
        database,
        build.ended("on-canary", seq=1, canary="canary-1", arm=ARM_CANARY, **_flags(build.FUSED)),
        build.started("in-control", seq=2, canary="canary-1", arm=ARM_CONTROL),
        build.window("of-none", seq=3),
    )
    arms = {one.id: one.arm for one in _evidence(database).sessions}
    assert arms == {"on-canary": ARM_CANARY, "in-control": ARM_CONTROL, "of-none": ARM_CONTROL}


def test_open_and_closed_sessions_are_seen_alike(database: Database) -> None:
    _stand(database)
    _send(
        database,
        build.ended("closed", seq=1, outcome=Outcome.FAILED, reason=Reason.NAN),
        build.window("open", seq=2, num_steps=100, num_non_compliant_steps=2),
    )
    closed, running = _evidence(database).sessions
    assert (closed.id, closed.outcome, closed.reason) == ("closed", Outcome.FAILED, Reason.NAN)
    assert (running.id, running.outcome, running.is_non_compliant) == ("open", None, True)
    # (252 - 4) / 10 and (128 - 4) / 5: frames after the first chunk over seconds streamed.
    assert (closed.fps, running.fps) == (24.8, 24.8)
    assert {closed.worker, running.worker} == {build.WORKER}


def test_a_session_on_something_else_than_the_baseline_is_no_control(database: Database) -> None:
    """A pin to the variant, or another canary's arm, would make control look like canary."""
    _stand(database)
    _send(
        database,
        build.started("pinned", seq=1, **_flags(build.FUSED)),
        build.started("other", seq=2, canary="canary-9", arm="canary", **_flags(build.FUSED)),
        build.started("foreign", seq=3, flags={}),
    )
    assert [one.id for one in _evidence(database).sessions] == ["foreign"]


@pytest.mark.parametrize("event", [Event.GATE_FAILED, Event.ABORT_REQUESTED])
def test_a_process_that_ran_what_failed_is_no_control_until_it_is_replaced(
    database: Database, event: Event
) -> None:
    """What a bad variant left behind slows the controls, and a slow canary would look as good."""
    _stand(database)
    arm = {"canary": "canary-1", "arm": ARM_CANARY, **_flags(build.FUSED)}
    with database.write() as conn:
        build.put_worker(conn, "worker-2")
        _fail(conn, event)
    _send(
        database,
        build.ended("ended", seq=1),
        build.window("open", seq=2),
        build.started("drawn", seq=3, **arm),
    )
    _send(database, build.window("clean"), worker="worker-2")
    drawn_and_clean = {"drawn", "clean"}
    every = drawn_and_clean | {"ended", "open"}
    seen = {one.id for one in _evidence(database).sessions}
    assert seen == (drawn_and_clean if event is Event.GATE_FAILED else every)
    with database.write() as conn:
        build.put_worker(conn, incarnation="another-life")
    told = build.received(build.window("fresh"), incarnation="another-life")
    ingest.ingest_logs(database, identity=build.writer(), records=[told], now=START)
    assert "fresh" in {one.id for one in _evidence(database).sessions}


def test_workers_of_another_stack_or_fleet_are_not_looked_at(database: Database) -> None:
    _stand(database)
    with database.write() as conn:
        build.put_worker(conn, "worker-2", stack=_OTHER)
        build.put_worker(conn, "worker-3")
    other = {"stack": vocabulary.stack_digest(_OTHER)}
    _send(database, build.window("s2"), worker="worker-2", **other)
    _send(database, build.process_window(seq=9), worker="worker-2", **other)
    _send(database, build.window("s3"), worker="worker-3")
    seen = _evidence(database)
    assert [one.worker for one in seen.sessions] == ["worker-3"]
    assert seen.memories == ()
    assert set(seen.newest_record_at) == {"worker-3"}


def test_sessions_before_the_canary_are_left_out(database: Database, clock: FakeClock) -> None:
    _stand(database)
    _send(database, build.window("before"))
    _send(database, build.window("after", seq=9), at=clock.advance(minutes=1))
    seen = _evidence(database, since=START + timedelta(seconds=1))
    assert [one.id for one in seen.sessions] == ["after"]


def test_only_the_present_process_holds_memory(database: Database, clock: FakeClock) -> None:
    _stand(database)
    lengths = [{"length": 300, "retained_bytes": 7}]
    window = build.process_window(flag_bytes={build.FLAG: 5, "decoder": 9}, lengths=lengths)
    _send(database, window)
    (memory,) = _evidence(database).memories
    assert (memory.flag_bytes, memory.lengths) == (5, {300: 7})
    with database.write() as conn:
        build.put_worker(conn, incarnation="second", now=clock.advance(minutes=1))
    assert _evidence(database).memories == ()


def test_an_older_process_window_changes_nothing(database: Database) -> None:
    _stand(database)
    _send(database, build.process_window(seq=5, resident_bytes=50))
    _send(database, build.process_window(seq=4, resident_bytes=40))
    (memory,) = _evidence(database).memories
    assert memory.resident_bytes == 50


def test_a_trip_says_whether_the_variant_ran(database: Database, clock: FakeClock) -> None:
    _stand(database)
    with database.write() as conn:
        for trip, variant in (("t1", build.FUSED), ("t2", build.PLAIN)):
            told = build.breaker_trip(trip, **_flags(variant))
            worker_id = f"id-{build.WORKER}"
            worker_store.record_trip(conn, worker_id=worker_id, trip=told, now=clock.now())
            clock.advance(seconds=1)
    trips = _evidence(database).trips
    assert [(trip.id, trip.is_on_variant) for trip in trips] == [("t1", True), ("t2", False)]


def test_a_session_that_changed_variant_shows_its_segments(database: Database) -> None:
    _stand(database)
    segments = [build.segment(build.FUSED), build.segment(build.PLAIN, num_frames=50)]
    arm = {"canary": "canary-1", "arm": ARM_CANARY, **_flags(build.FUSED)}
    _send(database, build.ended(segments=segments, **arm))
    (session,) = _evidence(database).sessions
    assert [(one.variant, one.fps) for one in session.segments] == [
        (build.FUSED, 25.0),
        (build.PLAIN, 25.0),
    ]


def _stand(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        build.put_canary(conn)


def _fail(conn: Connection, event: Event) -> None:
    """Another canary of the flag, that the first worker was exposed to and that was sent back."""
    canary = build.put_canary(
        conn,
        id="canary-0",
        name="fused-allreduce-0",
        variant="fused_small_tiles",
        phase=Phase.ROLLED_BACK,
    )
    canary_store.expose(
        conn,
        canary_id=canary.id,
        worker_id=f"id-{build.WORKER}",
        incarnation=f"incarnation-{build.WORKER}",
        flag_bytes=0,
        now=START,
    )
    build.put_way_back(conn, canary, event)


def _evidence(database: Database, **options: Any) -> Evidence:
    with database.read() as conn:
        canary = canary_store.get(conn, name_or_id="canary-1")
        return evidence_store.of_canary(conn, canary=canary, **{"since": START, **options})


def _send(
    database: Database,
    *records: Any,
    worker: str = build.WORKER,
    at: Any = START,
    **changes: Any,
) -> None:
    told = [
        build.received(record, incarnation=f"incarnation-{worker}", **changes) for record in records
    ]
    identity = build.writer(worker)
    result = ingest.ingest_logs(database, identity=identity, records=told, now=at)
    assert result.rejected == ()


def _flags(variant: str) -> dict[str, Any]:
    return {"flags": {build.FLAG: variant}}
