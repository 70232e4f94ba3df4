"""One session as the store keeps it, and how records merge into it. Pure.

Counters are cumulative, so the highest `seq` tells all; an end is final. Whatever the order, the
repeats and the windows that are missing, the same records make the same row, receipt times apart.
"""

from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Row

from controlplane.contract import vocabulary
from controlplane.contract.records import Counters, SessionEnded, SessionRecord
from controlplane.contract.vocabulary import ARM_CONTROL, Outcome, Reason
from controlplane.domain.evidence import PARTS, SessionEvidence

# Over one step in a hundred under other flags than those drawn: never healthy evidence.
_NON_COMPLIANT_PERCENT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a session runs."""

    worker_id: str
    incarnation: str
    fleet_id: str
    hardware: str
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of a session under one set of flags."""

    flags: dict[str, str]
    num_frames: int
    streamed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession:
    """A row of `live_sessions`: a session that runs, or has ended lately."""

    id: str
    worker_id: str
    incarnation: str
    fleet_id: str
    hardware: str
    stack: str
    canary: str | None
    arm: str | None
    flags: dict[str, str]
    first_forward_length: int
    is_synthetic: bool
    seq: int
    generation: int
    started_at: datetime
    updated_at: datetime
    num_frames: int = 0
    num_first_chunk_frames: int = 0
    streamed_s: float = 0.0
    viewer_wait_s: float = 0.0
    num_late_chunks: int = 0
    longest_stall_ms: float = 0.0
    worst_second_frames: int | None = None
    num_steps: int = 0
    num_non_compliant_steps: int = 0
    diffusion_ms_mean: float | None = None
    reduce_ms_mean: float | None = None
    decoder_ms_mean: float | None = None
    encode_ms_mean: float | None = None
    outcome: Outcome | None = None
    reason: Reason | None = None
    detail: str = ""
    ended_at: datetime | None = None
    late_outcome: Outcome | None = None

    @property
    def fps(self) -> float | None:
        """Frames a second, or None where nothing can be said."""
        return vocabulary.session_fps(
            num_frames=self.num_frames,
            num_first_chunk_frames=self.num_first_chunk_frames,
            streamed_s=self.streamed_s,
        )

    @property
    def is_non_compliant(self) -> bool:
        """Whether too many of its steps ran under other flags than those drawn."""
        return 100 * self.num_non_compliant_steps > _NON_COMPLIANT_PERCENT * self.num_steps


COLUMNS: Final = tuple(field.name for field in fields(LiveSession))
_COUNTERS: Final = tuple(
    name for name in Counters.model_fields if name not in SessionRecord.model_fields
)


def merged(
    before: LiveSession | None, record: SessionRecord, *, origin: Origin, now: datetime
) -> LiveSession:
    """The session with `record` taken in.

    Args:
        before: the session so far; None: this is its first record to arrive.
        record: one record of it, from the same worker.
        origin: where it runs, for a first record.
        now: receipt of the record.
    """
    if before is None:
        return _told(_begun(record, origin=origin, now=now), record, now=now)
    if before.outcome is not None:
        return _late(before, record)
    if record.seq <= before.seq and not isinstance(record, SessionEnded):
        return replace(before, updated_at=max(before.updated_at, now))
    return _told(before, record, now=now)


def lost(session: LiveSession, *, now: datetime) -> LiveSession:
    """The session as one whose end will never be known."""
    return replace(
        session,
        outcome=Outcome.LOST,
        reason=Reason.PROCESS_LOST,
        detail="its process was replaced or fell silent before an end was recorded",
        ended_at=now,
    )


def evidence(row: LiveSession, *, worker: str, canary_id: str) -> SessionEvidence:
    """What a judge sees of the session, without its segments.

    Args:
        row: the session.
        worker: name of its worker.
        canary_id: of the canary judged; a session of any other, or of none, is a control.
    """
    is_in = row.canary == canary_id and row.arm is not None
    times = {part: getattr(row, f"{part}_ms_mean") for part in PARTS}
    return SessionEvidence(
        id=row.id,
        worker=worker,
        incarnation=row.incarnation,
        arm=row.arm if is_in and row.arm is not None else ARM_CONTROL,
        started_at=row.started_at,
        updated_at=row.updated_at,
        outcome=row.outcome,
        reason=row.reason,
        fps=row.fps,
        streamed_s=row.streamed_s,
        first_forward_length=row.first_forward_length,
        is_synthetic=row.is_synthetic,
        is_non_compliant=row.is_non_compliant,
        is_drawn=is_in,
        longest_stall_ms=row.longest_stall_ms,
        parts_ms={part: ms for part, ms in times.items() if ms is not None},
    )


def to_row(session: LiveSession) -> dict[str, Any]:
    """The columns of `live_sessions`."""
    return {name: getattr(session, name) for name in COLUMNS}


def from_row(row: Row[Any]) -> LiveSession:
    """The session of a row of `live_sessions` or `sessions`."""
    values = row._asdict()
    known = {name: values[name] for name in COLUMNS if name in values}
    for name, kind in (("outcome", Outcome), ("reason", Reason), ("late_outcome", Outcome)):
        if known.get(name) is not None:
            known[name] = kind(known[name])
    return LiveSession(**known)


def _begun(record: SessionRecord, *, origin: Origin, now: datetime) -> LiveSession:
    return LiveSession(
        id=record.session,
        worker_id=origin.worker_id,
        incarnation=origin.incarnation,
        fleet_id=origin.fleet_id,
        hardware=origin.hardware,
        stack=origin.stack,
        canary=record.canary,
        arm=record.arm,
        flags=dict(record.flags),
        first_forward_length=record.first_forward_length,
        is_synthetic=record.is_synthetic,
        seq=record.seq,
        generation=record.generation,
        started_at=now,
        updated_at=now,
    )


def _told(session: LiveSession, record: SessionRecord, *, now: datetime) -> LiveSession:
    """`session` with everything that `record` says."""
    said: dict[str, Any] = {
        "canary": record.canary,
        "arm": record.arm,
        "flags": dict(record.flags),
        "first_forward_length": record.first_forward_length,
        "is_synthetic": record.is_synthetic,
        # An end may be overtaken, never outdone: it keeps the higher number.
        "seq": max(session.seq, record.seq),
        "generation": record.generation,
        "updated_at": max(session.updated_at, now),
    }
    if isinstance(record, Counters):
        said |= {name: getattr(record, name) for name in _COUNTERS}
    if isinstance(record, SessionEnded):
        said |= {
            "outcome": record.outcome,
            "reason": record.reason,
            "detail": record.detail,
            "ended_at": now,
        }
    return replace(session, **said)


def _late(session: LiveSession, record: SessionRecord) -> LiveSession:
    """The first end stands; one that comes after `lost` is kept beside it."""
    is_after_lost = session.outcome is Outcome.LOST and isinstance(record, SessionEnded)
    if is_after_lost and isinstance(record, SessionEnded) and session.late_outcome is None:
        return replace(session, late_outcome=record.outcome)
    return replace(session, seq=max(session.seq, record.seq))
