"""What a canary is judged on: sessions, memory and trips, as they came in."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import isfinite
from typing import Final

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Outcome, Reason

# The parts of a step that are timed, as session records name them.
PARTS: Final = ("diffusion", "reduce", "decoder", "encode")


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
    # Whether its arm was drawn for this canary; else it is a control only by running the baseline.
    is_drawn: bool = False
    longest_stall_ms: float = 0.0
    parts_ms: Mapping[str, float] = field(default_factory=dict)  # mean by part, those measured

    @property
    def step_ms(self) -> float | None:
        """Mean time of a step on the ranks: what a kernel flag changes. None: not measured."""
        times = [self.parts_ms[part] for part in ("diffusion", "reduce") if part in self.parts_ms]
        return sum(times) if times else None

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
class QualityEvidence:
    """What was measured of the picture under the canary's variant, by whoever measures it."""

    id: str
    measure: str
    value: float
    num_samples: int
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything received about one canary's stratum since its step began."""

    sessions: tuple[SessionEvidence, ...]
    memories: tuple[MemoryEvidence, ...]
    trips: tuple[TripEvidence, ...]
    newest_record_at: Mapping[str, datetime]  # worker -> receipt of its newest record
    probes: tuple[ProbeEvidence, ...] = ()  # oldest first
    qualities: tuple[QualityEvidence, ...] = ()


def _is_rated(fps: float | None, *, streamed_s: float) -> bool:
    # What is not finite was not measured, and comparing it would raise.
    if fps is None or not isfinite(fps) or not isfinite(streamed_s):
        return False
    return vocabulary.counts_for_rate(streamed_s)
