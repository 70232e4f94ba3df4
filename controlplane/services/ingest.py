"""Takes in measurements: each record once, all of a batch or none, and only a worker's own.

A record that cannot be right is rejected with the reason and the others are kept; nothing is
repaired here, since a repaired measurement is an invented one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from controlplane.contract.records import (
    RECORD_TYPES,
    Counters,
    ProcessWindow,
    Record,
    Segment,
    SessionEnded,
    SessionRecord,
)
from controlplane.contract.vocabulary import CONTRACT_VERSION, EventName, Outcome
from controlplane.store import receipts, session_row
from controlplane.store import sessions as session_store
from controlplane.store.receipts import Life
from controlplane.store.session_row import LiveSession, Origin
from controlplane.store.transaction import Connection, Database

# The longest a viewer could stay: beyond it a clock or a counter is broken.
MAX_STREAMED_S: Final = 7 * 24 * 3600.0
# No worker renders a tenth of it; a second of streaming keeps short sessions out.
MAX_FPS: Final = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """The worker whose records the caller may write."""

    fleet: str
    worker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One record as it came, and who it says it is from."""

    event: EventName
    incarnation: str
    hardware: str
    stack: str
    record: Record

    @property
    def key(self) -> tuple[str, int]:
        """What makes it the same record again."""
        return (self.incarnation, self.record.seq)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult:
    """What became of a batch."""

    num_new: int
    num_repeated: int
    rejected: tuple[tuple[int, str], ...]  # index in the batch, and why


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is stored about the batch's incarnations and sessions."""

    lives: Mapping[str, Life]
    live: Mapping[str, LiveSession]
    closed: frozenset[str]  # sessions that are no longer among the live ones
    owners: Mapping[str, str]  # session -> its incarnation; of a new one, the first to name it


def ingest_logs(
    database: Database, *, identity: Writer, records: Sequence[Received], now: datetime
) -> IngestResult:
    """Keep what is new in `records`, in one transaction.

    Args:
        database: where to.
        identity: whose records these may be.
        records: in any order, with any repeats.
        now: receipt.
    """
    if not records:
        return IngestResult(num_new=0, num_repeated=0, rejected=())
    with database.write() as conn:
        return _ingest(conn, identity=identity, records=records, now=now)


def _ingest(
    conn: Connection, *, identity: Writer, records: Sequence[Received], now: datetime
) -> IngestResult:
    lives = receipts.locked_lives(
        conn,
        fleet=identity.fleet,
        worker=identity.worker,
        named=(one.incarnation for one in records),
    )
    known = _known(conn, lives, records)
    reasons = [_refusal(one, known) for one in records]
    accepted = [one for one, why in zip(records, reasons, strict=True) if why is None]
    fresh = receipts.insert_new(conn, (one.key for one in accepted), now=now)
    first = {one.key: one for one in reversed(accepted) if one.key in fresh}
    _keep(conn, list(first.values()), known, now=now)
    return IngestResult(
        num_new=len(first),
        num_repeated=len(accepted) - len(first),
        rejected=tuple((i, why) for i, why in enumerate(reasons) if why is not None),
    )


def _known(conn: Connection, lives: Mapping[str, Life], records: Sequence[Received]) -> _Known:
    named = {one.record.session for one in records if isinstance(one.record, SessionRecord)}
    live = session_store.live(conn, named) if named else {}
    missing = named - live.keys()
    closed = session_store.closed(conn, missing) if missing else frozenset()
    owners = {session.id: session.incarnation for session in live.values()}
    for one in records:
        if isinstance(one.record, SessionRecord):
            owners.setdefault(one.record.session, one.incarnation)
    return _Known(lives=lives, live=live, closed=closed, owners=owners)


def _keep(conn: Connection, fresh: Sequence[Received], known: _Known, *, now: datetime) -> None:
    by_life: dict[str, list[Received]] = {}
    for one in fresh:
        by_life.setdefault(one.incarnation, []).append(one)
    for incarnation, group in sorted(by_life.items()):
        life = known.lives[incarnation]
        highest = max(one.record.seq for one in group)
        receipts.count(conn, life, num_records=len(group), highest_seq=highest, now=now)
        windows = [one.record for one in group if isinstance(one.record, ProcessWindow)]
        if windows:
            newest = max(windows, key=lambda window: window.seq)
            receipts.put_process_window(conn, life, newest, now=now)
    _merge(conn, fresh, known, now=now)


def _merge(conn: Connection, fresh: Sequence[Received], known: _Known, *, now: datetime) -> None:
    changed: dict[str, LiveSession] = {}
    ended: dict[str, Sequence[Segment]] = {}
    for one in sorted(fresh, key=lambda one: one.key):
        record = one.record
        if not isinstance(record, SessionRecord) or record.session in known.closed:
            continue
        before = changed.get(record.session) or known.live.get(record.session)
        origin = _origin(known.lives[one.incarnation])
        after = session_row.merged(before, record, origin=origin, now=now)
        changed[record.session] = after
        if isinstance(record, SessionEnded) and (before is None or before.outcome is None):
            ended[record.session] = record.segments
    session_store.put(conn, [changed[name] for name in sorted(changed)], ended=ended)


def _origin(life: Life) -> Origin:
    return Origin(
        worker_id=life.worker_id,
        incarnation=life.id,
        fleet_id=life.fleet_id,
        hardware=life.hardware,
        stack=life.stack,
    )


def _refusal(one: Received, known: _Known) -> str | None:
    """Why `one` cannot be taken, naming the key, or None."""
    life = known.lives.get(one.incarnation)
    if life is None:
        return f"service.instance.id: {one.incarnation} has not been registered by this worker"
    for key, said, known_as in (
        ("steadyframe.hardware", one.hardware, life.hardware),
        ("steadyframe.stack", one.stack, life.stack),
    ):
        if said != known_as:
            return f"{key}: {said} is not what the incarnation registered with, {known_as}"
    if one.record.contract != CONTRACT_VERSION:
        return f"contract: {one.record.contract} is not {CONTRACT_VERSION}"
    if type(one.record) is not RECORD_TYPES[one.event]:
        return f"event_name: {one.event} does not fit {type(one.record).__name__}"
    if isinstance(one.record, SessionRecord):
        return _session_refusal(one.record, one.incarnation, known)
    return None


def _session_refusal(record: SessionRecord, incarnation: str, known: _Known) -> str | None:
    if known.owners[record.session] != incarnation:
        return f"session: {record.session} belongs to another incarnation"
    if (record.canary is None) != (record.arm is None):
        return "arm: a session has both canary and arm, or neither"
    return _impossible(record) if isinstance(record, Counters) else None


def _impossible(record: Counters) -> str | None:
    """Which counter cannot be right, or None. What is merely unlikely passes."""
    if record.num_frames < record.num_first_chunk_frames:
        return (
            f"num_frames: {record.num_frames} is less than num_first_chunk_frames,"
            f" {record.num_first_chunk_frames}"
        )
    if record.streamed_s > MAX_STREAMED_S:
        return f"streamed_s: {record.streamed_s} is more than {MAX_STREAMED_S:.0f}"
    if record.num_frames > MAX_FPS * max(record.streamed_s, 1.0):
        return f"num_frames: {record.num_frames} in {record.streamed_s} s is more than can be"
    if record.num_non_compliant_steps > record.num_steps:
        return f"num_non_compliant_steps: more than num_steps, {record.num_steps}"
    if isinstance(record, SessionEnded):
        return _impossible_end(record)
    return None


def _impossible_end(record: SessionEnded) -> str | None:
    if record.outcome is Outcome.LOST:
        return "outcome: lost is not a worker's to say"
    if sum(segment.num_frames for segment in record.segments) > record.num_frames:
        return (
            f"segments: they have more frames than num_frames of the session, {record.num_frames}"
        )
    return None
