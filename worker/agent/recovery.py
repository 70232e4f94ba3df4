"""A death leaves a record: sessions that a dead incarnation left open are closed in its name.

The spool is the only source: it keeps, delivered or not, what this needs.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from controlplane.contract.records import Counters, SessionRecord
from controlplane.contract.vocabulary import EventName, Outcome, Reason
from worker.agent import records
from worker.agent.records import Ledger, Written
from worker.agent.spool import Entry, Spool

logger = logging.getLogger(__name__)

Numbered = tuple[int, Written]


def needed(entries: Sequence[Entry]) -> frozenset[int]:
    """Numbers of the entries without which an open session could not be closed after a death.

    For each open session its start and its latest window; for each incarnation its last record,
    whose `seq` says where to go on.
    """
    written = records.all_written(list(entries))
    last_of = {each.identity.incarnation: number for number, each in written}
    kept = set(last_of.values())
    for numbered in _open_sessions(written).values():
        kept.update({numbered[0][0], numbered[-1][0]})
    return frozenset(kept)


def close_lost_sessions(spool: Spool, *, wall_ns: Callable[[], int]) -> int:
    """Append `failed(process_lost)` for every session left open, and return how many there were.

    To be called before this life writes its first record: every open session is then a dead one's.
    """
    written = records.all_written(spool.entries())
    last_seq = _last_seqs(each for _, each in written)
    lost = _open_sessions(written)
    for session, numbered in lost.items():
        latest = numbered[-1][1]
        incarnation = latest.identity.incarnation
        ledger = Ledger(
            spool,
            identity=latest.identity,
            wall_ns=wall_ns,
            on_append=lambda _is_urgent: None,
            last_seq=last_seq[incarnation],
        )
        ledger.write(EventName.SESSION_ENDED, _ending(latest))
        last_seq[incarnation] += 1
        logger.warning("lost_session_closed session=%s incarnation=%s", session, incarnation)
    return len(lost)


def _open_sessions(written: Sequence[Numbered]) -> dict[str, list[Numbered]]:
    """Records of the sessions that started and did not end, in order."""
    sessions: dict[str, list[Numbered]] = {}
    for number, each in written:
        session = str(each.record.get("session", ""))
        if each.event is EventName.SESSION_STARTED:
            sessions[session] = [(number, each)]
        elif each.event is EventName.SESSION_ENDED:
            sessions.pop(session, None)
        elif session in sessions:
            sessions[session].append((number, each))
    return sessions


def _last_seqs(written: Iterable[Written]) -> dict[str, int]:
    last: dict[str, int] = {}
    for each in written:
        incarnation = each.identity.incarnation
        last[incarnation] = max(each.seq, last.get(incarnation, 0))
    return last


def _ending(latest: Written) -> dict[str, Any]:
    """Fields of the end: the counters of the latest window, or none if there was no window."""
    record = records.parse(latest)
    assert isinstance(record, SessionRecord), "only records of sessions open one"
    counters: dict[str, Any] = {"num_frames": 0, "num_first_chunk_frames": 0, "streamed_s": 0.0}
    if isinstance(record, Counters):
        counters = {}
    fields = {name: getattr(record, name) for name in type(record).model_fields if name != "seq"}
    return {
        **fields,
        **counters,
        "outcome": Outcome.FAILED,
        "reason": Reason.PROCESS_LOST,
        "detail": "the processes of the worker ended with the session open",
    }
