"""What a canary is judged on: sessions, memory and trips, as they came in; and blocks of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Outcome, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentEvidence:
    """A stretch of a session under one set of flags."""

    variant: str  # of the flag under test
    fps: float | None
    streamed_s: float

    def counts_for_rate(self) -> bool:
        """Whether its fps may be judged: long enough, and a number."""
        return _is_rated(self.fps, streamed_s=self.streamed_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvidence:
    """One session on a worker of the canary's stratum, as far as it is known."""

    id: str
    worker: str
    incarnation: str
    arm: str  # drawn; controls on other workers carry ARM_CONTROL
    started_at: datetime  # receipt
    updated_at: datetime  # receipt of its newest record
    outcome: Outcome | None  # None: it runs
    reason: Reason | None
    fps: float | None  # None: cannot be said
    streamed_s: float
    first_forward_length: int
    is_synthetic: bool
    is_non_compliant: bool
    segments: tuple[SegmentEvidence, ...] = ()

    @property
    def has_failed(self) -> bool:
        """Whether its worker let it down; no least duration, the August deaths came at once."""
        return self.outcome in (Outcome.FAILED, Outcome.LOST)

    @property
    def is_ended(self) -> bool:
        """Whether its outcome is known."""
        return self.outcome is not None

    def is_judged(self, *, horizon: timedelta) -> bool:
        """Whether its rate is final: it has ended, or streamed to the horizon."""
        return self.is_ended or self.streamed_s >= horizon.total_seconds()

    def counts_for_rate(self) -> bool:
        """Whether its fps may be judged: long enough, paced by the worker, compliant, a number."""
        return (
            _is_rated(self.fps, streamed_s=self.streamed_s)
            and self.outcome is not Outcome.VIEWER_LIMITED
            and not self.has_failed
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEvidence:
    """Memory of one incarnation, newest record."""

    worker: str
    incarnation: str
    received_at: datetime
    resident_bytes: int
    limit_bytes: int | None
    flag_bytes: int  # retained by the flag under test
    lengths: Mapping[int, int]  # first-forward length -> bytes kept for it
    num_sessions_started: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TripEvidence:
    """A breaker that opened on a worker of the stratum."""

    id: str
    worker: str
    reason: Reason
    at: datetime
    is_on_variant: bool  # the flag under test had the canary's variant when it happened
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeEvidence:
    """What one worker without viewers measured in preflight."""

    id: str
    worker: str
    incarnation: str
    received_at: datetime
    lengths: Mapping[int, int]  # first-forward length -> bytes that the flag keeps for it
    flag_bytes_before: int
    rollback_ms: float | None  # None: it did not come to the drill
    flag_bytes_left: int | None
    fault: Reason | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything received about one canary's stratum since its step began."""

    sessions: tuple[SessionEvidence, ...]
    memories: tuple[MemoryEvidence, ...]
    trips: tuple[TripEvidence, ...]
    newest_record_at: Mapping[str, datetime]  # worker -> receipt of its newest record
    probes: tuple[ProbeEvidence, ...] = ()  # oldest first


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmCounts:
    """Sessions of one arm in one block."""

    num_started: int = 0
    num_rated: int = 0
    num_slow: int = 0
    num_very_slow: int = 0
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Sessions that started in one window; written once when all are judged, then never revised."""

    index: int  # windows since the canary began
    opened_at: datetime
    closed_at: datetime
    arms: Mapping[str, ArmCounts]
    sessions: tuple[str, ...]  # ids, sorted


def closed_blocks(
    sessions: Iterable[SessionEvidence],
    *,
    since: datetime,
    width: timedelta,
    horizon: timedelta,
    known: frozenset[int],
    now: datetime,
) -> tuple[Block, ...]:
    """Blocks that can be written now: window over, every session judged, not written before.

    Args:
        sessions: of both arms.
        since: start of the first window.
        width: of a window.
        horizon: streaming time at which a running session is judged.
        known: indices of blocks that exist already.
        now: of this judgement.
    """
    by_window: dict[int, list[SessionEvidence]] = {}
    for session in sessions:
        if session.started_at >= since:
            by_window.setdefault((session.started_at - since) // width, []).append(session)
    return tuple(
        _block(index, group, since=since, width=width, now=now)
        for index, group in sorted(by_window.items())
        if index not in known
        and since + (index + 1) * width <= now
        and all(session.is_judged(horizon=horizon) for session in group)
    )


def _block(
    index: int,
    sessions: Sequence[SessionEvidence],
    *,
    since: datetime,
    width: timedelta,
    now: datetime,
) -> Block:
    arms = {session.arm for session in sessions}
    return Block(
        index=index,
        opened_at=since + index * width,
        closed_at=now,
        arms={arm: _counts(s for s in sessions if s.arm == arm) for arm in sorted(arms)},
        sessions=tuple(sorted(session.id for session in sessions)),
    )


def _counts(sessions: Iterable[SessionEvidence]) -> ArmCounts:
    count: Counter[str] = Counter()
    for session in sessions:
        count["started"] += 1
        count["failed"] += session.has_failed
        if session.counts_for_rate() and session.fps is not None:
            count["rated"] += 1
            count["slow"] += vocabulary.is_slow(session.fps)
            count["very_slow"] += vocabulary.is_very_slow(session.fps)
    return ArmCounts(
        num_started=count["started"],
        num_rated=count["rated"],
        num_slow=count["slow"],
        num_very_slow=count["very_slow"],
        num_failed=count["failed"],
    )


def _is_rated(fps: float | None, *, streamed_s: float) -> bool:
    # What is not finite was not measured, and comparing it would raise.
    if fps is None or not isfinite(fps) or not isfinite(streamed_s):
        return False
    return vocabulary.counts_for_rate(streamed_s)
