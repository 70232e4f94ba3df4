"""A death leaves a record."""

from pathlib import Path
from typing import Any

from controlplane.contract.records import SessionEnded
from controlplane.contract.vocabulary import EventName, Outcome, Reason
from tests.worker.agent.build import FALLBACK, IDENTITY
from worker.agent import records, recovery
from worker.agent.records import Ledger, Written
from worker.agent.spool import Spool

WINDOW = {"num_frames": 24, "num_first_chunk_frames": 4, "streamed_s": 0.8}


def fields(session: str, **more: Any) -> dict[str, Any]:
    return {"session": session, "flags": FALLBACK, "canary": "c-1", "arm": "control", **more}


def ledger(spool: Spool) -> Ledger:
    return Ledger(spool, identity=IDENTITY, wall_ns=lambda: 1, on_append=lambda _urgent: None)


def closed(spool: Spool) -> list[Written]:
    recovery.close_lost_sessions(spool, wall_ns=lambda: 2)
    return [written for _, written in records.all_written(spool.entries()) if written.at_ns == 2]


def test_an_open_session_is_closed_in_the_name_of_its_incarnation(tmp_path: Path) -> None:
    """With the counters of its last window, and the next number of that incarnation."""
    spool = Spool(tmp_path)
    dead = ledger(spool)
    dead.write(EventName.SESSION_STARTED, fields("a"))
    dead.write(EventName.SESSION_WINDOW, fields("a", **WINDOW))
    dead.write(EventName.PROCESS_WINDOW, {"resident_bytes": 1, "num_sessions_started": 1})
    (written,) = closed(spool)
    ended = records.parse(written)
    assert isinstance(ended, SessionEnded)
    assert (ended.outcome, ended.reason) == (Outcome.FAILED, Reason.PROCESS_LOST)
    assert (ended.session, ended.canary, ended.arm) == ("a", "c-1", "control")
    assert (ended.num_frames, ended.streamed_s) == (24, 0.8)
    assert ended.seq == 4
    assert written.identity == IDENTITY
    spool.close()


def test_a_session_that_died_before_its_first_window_is_closed_too(tmp_path: Path) -> None:
    """These are the deaths that left no trace in August."""
    spool = Spool(tmp_path)
    ledger(spool).write(EventName.SESSION_STARTED, fields("a"))
    (written,) = closed(spool)
    assert written.record["num_frames"] == 0
    assert written.record["reason"] == "process_lost"
    spool.close()


def test_a_session_that_ended_is_left_alone_and_nothing_is_closed_twice(tmp_path: Path) -> None:
    """The first terminal outcome wins; there is one."""
    spool = Spool(tmp_path)
    dead = ledger(spool)
    dead.write(EventName.SESSION_STARTED, fields("a"))
    dead.write(EventName.SESSION_ENDED, fields("a", **WINDOW, outcome=Outcome.COMPLETED))
    dead.write(EventName.SESSION_STARTED, fields("b"))
    assert [written.record["session"] for written in closed(spool)] == ["b"]
    assert recovery.close_lost_sessions(spool, wall_ns=lambda: 3) == 0
    spool.close()


def test_an_open_session_is_closed_although_all_was_delivered_and_compacted(
    tmp_path: Path,
) -> None:
    """The control plane knows of the start; it must hear of the end."""
    spool = Spool(tmp_path, limit_bytes=4000, needed=recovery.needed)
    dead = ledger(spool)
    dead.write(EventName.SESSION_STARTED, fields("a"))
    for _ in range(40):
        dead.write(EventName.SESSION_WINDOW, fields("a", **WINDOW))
        dead.write(EventName.PROCESS_WINDOW, {"resident_bytes": 1, "num_sessions_started": 1})
        spool.confirm(spool.pending(limit=9)[-1].number)
    spool.close()
    again = Spool(tmp_path, limit_bytes=4000, needed=recovery.needed)
    (written,) = closed(again)
    assert written.seq == 82
    assert written.record["num_frames"] == 24
    assert [entry.payload for entry in again.pending(limit=9)] == [records.encode(written)]
    again.close()
