"""Fleets and workers as the control plane knows them, and who may take part in a canary."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from controlplane.contract import vocabulary
from controlplane.domain.policy import Workers


class Mode(StrEnum):
    """How far a fleet lets Steadyframe act."""

    OBSERVE = "observe"  # judge, record "would have flipped", flip nothing
    ENFORCE = "enforce"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A named group of workers that serve the same model."""

    id: str
    name: str
    mode: Mode
    promoted: Mapping[str, str]  # flag -> variant; absent: the fallback
    stopped_reason: str | None  # not None: stop-the-line, everything at the fallback
    version: int
    # Made-up sessions to look at. It takes no workers and never leaves `observe`.
    is_sample: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """An operator's choice for one worker and flag, until it expires."""

    flag: str
    variant: str
    reason: str
    actor: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Trip:
    """The worker's own breaker opened and has not been closed since."""

    reason: str
    at: datetime
    generation: int  # desired then; the breaker closes when a newer one is wanted by a person


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One replica: a tensor-parallel group and its decoder, one session at a time."""

    id: str
    fleet: str
    name: str
    hardware: str
    stack: str  # digest
    incarnation: str
    incarnation_since: datetime
    address: str
    capabilities: Mapping[str, tuple[str, ...]]  # flag -> variants its build knows
    desired_generation: int
    desired_flags: Mapping[str, str]
    effective_generation: int  # last that all ranks reported; 0: none in this incarnation
    effective_flags: Mapping[str, str]
    effective_at: datetime | None
    flag_bytes: Mapping[str, int]  # retained by each flag's code, newest report
    flag_bytes_at: datetime | None
    last_seen_at: datetime
    last_record_at: datetime | None  # receipt of the newest evidence record
    num_open_sessions: int
    trip: Trip | None
    pins: tuple[Pin, ...]
    is_cordoned: bool
    is_quarantined: bool
    is_break_glass: bool
    is_lease_lapsed: bool  # it left a variant by itself; only a newer generation leads back

    @property
    def stratum(self) -> tuple[str, str]:
        """What it may be compared within: hardware and stack."""
        return (self.hardware, self.stack)

    def is_effective(self) -> bool:
        """Whether every rank runs what is desired, as reported by this incarnation."""
        return self.effective_generation >= self.desired_generation and vocabulary.runs(
            self.effective_flags, self.desired_flags
        )

    def is_reachable(self, *, now: datetime, within: timedelta) -> bool:
        """Whether it has been heard of lately."""
        return now - self.last_seen_at <= within


# A worker that has not been heard of for this long takes no part in a new canary.
REACHABLE_WITHIN = timedelta(seconds=30)
# Workers on the old stack that a new one is compared with.
LEAST_CONTROLS = 2


def is_eligible(worker: Worker, *, variants: Mapping[str, str], now: datetime) -> bool:
    """Whether `worker` may be exposed to `variants`, or serve as a control of them.

    It must run what it is wanted to: a worker between two states is compared with nothing.
    """
    return (
        all(variant in worker.capabilities.get(flag, ()) for flag, variant in variants.items())
        and worker.is_reachable(now=now, within=REACHABLE_WITHIN)
        and worker.trip is None
        and worker.effective_generation >= worker.desired_generation
        and all(worker.effective_flags.get(f) == worker.desired_flags.get(f) for f in variants)
        and not (worker.is_cordoned or worker.is_quarantined or worker.is_break_glass)
        and not any(pin.flag in variants and pin.expires_at > now for pin in worker.pins)
    )


def runs(worker: Worker, variants: Mapping[str, str]) -> bool:
    """Whether `worker` is reported to run each of `variants`."""
    return vocabulary.runs(worker.effective_flags, variants)


def chosen_workers(
    eligible: Iterable[Worker],
    *,
    exposed: Iterable[str],
    wanted: Workers,
    num_controls: int | None = None,
) -> tuple[str, ...]:
    """Names of the workers a step exposes: those exposed before stay, then by name.

    Args:
        eligible: workers of one stratum that may take part.
        exposed: names of those that run the variant already; they count even if they are no longer
            eligible, since they are exposed all the same.
        wanted: by the step.
        num_controls: workers that are compared with, where those are of another stratum; None: what
            is not exposed is the control.
    """
    before = sorted(set(exposed))
    pool = sorted({worker.name for worker in eligible} | set(before))
    num_wanted = wanted.of(len(pool))
    if num_controls is not None:
        num_wanted = wanted.beside(len(pool), num_controls=num_controls)
    fresh = [name for name in pool if name not in before]
    return tuple(before + fresh[: max(0, num_wanted - len(before))])
