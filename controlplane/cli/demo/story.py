"""What the demo saw, as values: sessions, workers, a canary, and how each scene ended."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from controlplane.contract import vocabulary

# As the worker told the viewer, or as the viewer calls a stream that broke off.
_FAILURES: Final = frozenset({"failed", "lost", "cut_off"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewerSession:
    """One finished session as its viewer had it."""

    worker: str
    outcome: str  # as the worker told it; "left" and "cut_off" are the viewer's own words
    fps: float | None
    streamed_s: float
    first_forward_length: int
    longest_gap_ms: float
    ended_at: datetime

    @property
    def has_failed(self) -> bool:
        """Whether the worker let its viewer down."""
        return self.outcome in _FAILURES

    @property
    def counts(self) -> bool:
        """Whether its rate may be judged."""
        return (
            not self.has_failed
            and self.fps is not None
            and vocabulary.counts_for_rate(self.streamed_s)
        )

    @property
    def is_harmed(self) -> bool:
        """Whether its viewer saw a failure or less than the floor."""
        if self.has_failed:
            return True
        return self.counts and self.fps is not None and not vocabulary.meets_floor(self.fps)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSeen:
    """One worker as the API shows it."""

    name: str
    flags: Mapping[str, str]
    generation: int
    desired_generation: int
    is_effective: bool
    is_healthy: bool  # takes part: no trip, not cordoned, not quarantined


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSeen:
    """One gate of the last decision."""

    gate: str
    verdict: str
    reason: str
    failed_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedSeen:
    """A worker that has run the canary variant."""

    worker: str
    contained_at: datetime | None
    verified_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySeen:
    """One canary as the API shows it."""

    name: str
    variant: str
    phase: str
    step: int
    reason: str
    gates: tuple[GateSeen, ...] = ()
    exposed: tuple[ExposedSeen, ...] = ()

    @property
    def exposed_names(self) -> frozenset[str]:
        """Names of the workers that have run the variant."""
        return frozenset(each.worker for each in self.exposed)

    def first_failing(self) -> GateSeen | None:
        """The failing gate whose evidence came first."""
        failing = [gate for gate in self.gates if gate.failed_at is not None]
        return min(failing, key=lambda gate: str(gate.failed_at), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """Everything at one moment."""

    workers: tuple[WorkerSeen, ...] = ()
    canary: CanarySeen | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneResult:
    """How one scene ended."""

    title: str
    is_as_expected: bool
    outcome: str  # of the canary or the fleet: "promoted", "rolled_back", "holds"
    reason: str
    took_s: float
    contained_after_s: float | None = None  # from the first failing record
    verified_after_s: float | None = None
    num_sessions_harmed: int = 0
    num_healthy_harmed: int = 0  # of them on workers that took no part in the canary
    num_sessions: int = 0
    lowest_healthy_fps: float | None = None
    problems: tuple[str, ...] = field(default=())

    @property
    def is_disturbed(self) -> bool:
        """Whether it failed while workers that took no part in it were harmed, too."""
        return not self.is_as_expected and self.num_healthy_harmed > 0


def lowest_fps(sessions: Iterable[ViewerSession]) -> float | None:
    """The lowest rate among the sessions that may be judged."""
    return min(
        (each.fps for each in sessions if each.counts and each.fps is not None), default=None
    )


def fps_text(fps: float | None) -> str:
    """A rate as the demo shows it."""
    return "-" if fps is None else f"{fps:.2f}"


def seconds_to_contained(canary: CanarySeen) -> float | None:
    """Seconds from the first failing record to the last worker contained; None: not known."""
    return _seconds(canary, [each.contained_at for each in canary.exposed])


def seconds_to_verified(canary: CanarySeen) -> float | None:
    """Seconds from the first failing record to the last worker verified; None: not known."""
    return _seconds(canary, [each.verified_at for each in canary.exposed])


def _seconds(canary: CanarySeen, times: list[datetime | None]) -> float | None:
    failing = canary.first_failing()
    known = [at for at in times if at is not None]
    if failing is None or failing.failed_at is None or not known or len(known) < len(times):
        return None
    return (max(known) - failing.failed_at).total_seconds()
