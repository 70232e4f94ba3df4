"""Measurements come in once each, all of a batch or none, and only a worker's own."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import func, select

from controlplane.contract.vocabulary import EventName, Outcome, Reason
from controlplane.services import ingest
from controlplane.services.ingest import IngestResult, Received
from controlplane.store import receipts
from controlplane.store import sessions as session_store
from controlplane.store import workers as worker_store
from controlplane.store.evidence_tables import receipts as receipts_table
from controlplane.store.evidence_tables import session_segments, sessions
from controlplane.store.tables import incarnations
from controlplane.store.transaction import Database
from tests import build
from tests.clock import START, FakeClock


def test_a_record_is_taken_once(database: Database) -> None:
    _stand(database)
    told = [build.received(build.started()), build.received(build.window())]
    assert _send(database, told) == IngestResult(num_new=2, num_repeated=0, rejected=())
    assert _send(database, told) == IngestResult(num_new=0, num_repeated=2, rejected=())


def test_repeats_within_a_batch_count_as_repeats(database: Database) -> None:
    _stand(database)
    one = build.received(build.window())
    assert _send(database, [one, one, one]) == IngestResult(num_new=1, num_repeated=2, rejected=())


def test_an_empty_batch_is_nothing(database: Database) -> None:
    assert _send(database, []) == IngestResult(num_new=0, num_repeated=0, rejected=())


def test_a_batch_marks_its_worker_fresh(database: Database, clock: FakeClock) -> None:
    _stand(database)
    _send(database, [build.received(build.process_window())], now=clock.advance(minutes=1))
    with database.read() as conn:
        assert worker_store.by_id(conn, "id-worker-1").last_record_at == clock.now()


def test_what_a_dead_process_left_does_not_make_the_present_one_fresh(
    database: Database, clock: FakeClock
) -> None:
    """A worker that restarts and then says nothing is blind, however full its spool was."""
    _stand(database)
    with database.write() as conn:
        build.put_worker(conn, incarnation="second")
    spooled = build.received(build.process_window())
    assert _send(database, [spooled], now=clock.advance(minutes=1)).num_new == 1
    with database.read() as conn:
        assert worker_store.by_id(conn, "id-worker-1").last_record_at is None


def test_lost_records_show_as_a_gap(database: Database) -> None:
    _stand(database)
    _send(database, [build.received(build.window(seq=seq)) for seq in (2, 7, 3)])
    with database.read() as conn:
        row = conn.execute(select(incarnations.c.num_records, incarnations.c.highest_seq)).one()
    assert tuple(row) == (3, 7)


def test_an_end_closes_the_session_and_keeps_its_segments(database: Database) -> None:
    _stand(database)
    segments = [build.segment(build.PLAIN), build.segment(build.FUSED)]
    end = build.ended(segments=segments, outcome=Outcome.FAILED, reason=Reason.OUT_OF_MEMORY)
    _send(database, [build.received(build.started()), build.received(end)])
    with database.read() as conn:
        row = conn.execute(select(sessions)).one()
        assert conn.scalars(select(func.count()).select_from(session_segments)).one() == 2
        assert session_store.closed(conn, ["session-1"]) == {"session-1"}
    assert (row.week, row.outcome, row.is_mixed) == ("2026-W41", "failed", True)


def test_a_late_end_after_lost_is_counted_not_applied(database: Database, clock: FakeClock) -> None:
    """The restarted agent closes what its dead process left open; the server was first."""
    _stand(database)
    _send(database, [build.received(build.started())])
    with database.write() as conn:
        build.put_worker(conn, incarnation="second", now=clock.advance(minutes=1))
    end = build.ended(outcome=Outcome.FAILED, reason=Reason.PROCESS_LOST)
    assert _send(database, [build.received(end)], now=clock.now()).num_new == 1
    with database.read() as conn:
        kept = session_store.live(conn, ["session-1"])["session-1"]
        assert conn.scalars(select(sessions.c.outcome)).all() == [Outcome.LOST]
    assert (kept.outcome, kept.late_outcome) == (Outcome.LOST, Outcome.FAILED)


def test_a_session_forgotten_among_the_live_is_not_opened_again(
    database: Database, clock: FakeClock
) -> None:
    """Two days on, a record that was stuck in a spool must not count its session twice."""
    _stand(database)
    _send(database, [build.received(build.ended())])
    with database.write() as conn:
        later = clock.advance(hours=49)
        assert session_store.forget(conn, before=later - timedelta(hours=48)) == 1
        assert receipts.forget(conn, before=later - timedelta(hours=48)) == 1
    _send(database, [build.received(build.window()), build.received(build.ended())], now=later)
    with database.read() as conn:
        assert session_store.live(conn, ["session-1"]) == {}
        assert len(conn.execute(select(sessions)).all()) == 1


_IMPOSSIBLE: list[tuple[Any, str]] = [
    (build.window(num_frames=3, num_first_chunk_frames=4), "num_frames: "),
    (build.window(streamed_s=8 * 24 * 3600.0), "streamed_s: "),
    (build.window(num_frames=10**6, streamed_s=0.5), "num_frames: "),
    (build.window(num_steps=1, num_non_compliant_steps=2), "num_non_compliant_steps: "),
    (build.window(contract=2), "contract: 2"),
    (build.window(canary="canary-1"), "arm: "),
    (build.ended(outcome=Outcome.LOST), "outcome: "),
    (build.ended(segments=[build.segment(num_frames=253)]), "segments: "),
]


@pytest.mark.parametrize(("record", "why"), _IMPOSSIBLE, ids=[why for _, why in _IMPOSSIBLE])
def test_what_cannot_be_is_rejected_by_its_key_and_the_rest_is_kept(
    sqlite_database: Database, record: Any, why: str
) -> None:
    _stand(sqlite_database)
    told = [build.received(record), build.received(build.process_window(seq=9))]
    result = _send(sqlite_database, told)
    assert result.num_new == 1
    ((index, reason),) = result.rejected
    assert index == 0
    assert reason.startswith(why)


_FOREIGN: list[tuple[dict[str, Any], str]] = [
    ({"incarnation": "nobody"}, "service.instance.id: nobody"),
    ({"stack": "0" * 16}, "steadyframe.stack: "),
    ({"hardware": "b200x3"}, "steadyframe.hardware: "),
    ({"event": EventName.SESSION_ENDED}, "event_name: "),
]


@pytest.mark.parametrize(("changes", "why"), _FOREIGN)
def test_what_does_not_fit_its_incarnation_is_rejected(
    sqlite_database: Database, changes: dict[str, Any], why: str
) -> None:
    _stand(sqlite_database)
    ((_, reason),) = _send(sqlite_database, [build.received(build.window(), **changes)]).rejected
    assert reason.startswith(why)


def test_a_worker_cannot_write_for_another(database: Database) -> None:
    _stand(database)
    with database.write() as conn:
        build.put_worker(conn, "worker-2")
    told = [build.received(build.window())]
    identity = build.writer("worker-2")
    result = ingest.ingest_logs(database, identity=identity, records=told, now=START)
    assert len(result.rejected) == 1
    theirs = [build.received(build.window(), incarnation="incarnation-worker-2")]
    assert _send(database, theirs).rejected


def test_a_session_of_another_worker_is_rejected(database: Database) -> None:
    """By its id one worker could otherwise end, or slow, another's session."""
    _stand(database)
    _send(database, [build.received(build.started())])
    with database.write() as conn:
        build.put_worker(conn, "worker-2")
    hijack = [build.received(build.ended(), incarnation="incarnation-worker-2")]
    identity = build.writer("worker-2")
    result = ingest.ingest_logs(database, identity=identity, records=hijack, now=START)
    assert [why for _, why in result.rejected] == [
        "session: session-1 belongs to another incarnation"
    ]


def test_a_worker_that_is_not_registered_gets_every_record_back(database: Database) -> None:
    result = _send(database, [build.received(build.window())])
    assert (result.num_new, len(result.rejected)) == (0, 1)


def test_a_batch_that_fails_leaves_nothing(database: Database) -> None:
    """Had its receipts stayed, the repeat of the batch would be taken for a repeat and be lost."""
    _stand(database)
    naive = START.replace(tzinfo=None)
    with pytest.raises(Exception, match="no time zone"):
        _send(database, [build.received(build.window())], now=naive)
    with database.read() as conn:
        assert conn.execute(select(receipts_table)).all() == []


def test_nul_in_a_detail_does_not_cost_the_batch(database: Database) -> None:
    _stand(database)
    end = build.ended(outcome=Outcome.FAILED, detail="out of\x00memory")
    assert _send(database, [build.received(end)]).num_new == 1


def _stand(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)


def _send(database: Database, records: Sequence[Received], *, now: Any = START) -> IngestResult:
    return ingest.ingest_logs(database, identity=build.writer(), records=records, now=now)
