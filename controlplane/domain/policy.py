"""What a canary must show: steps, bake, gates and limits, as typed values.

Parsing lives in `policy_document.py` and `gate_document.py`; here is what a policy means.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction

from controlplane.contract.vocabulary import FLOOR_FPS
from controlplane.domain.comparison import Weights


class Subject(StrEnum):
    """What a canary is about."""

    FLAG = "flag"  # one variant against the present one, on one stack
    STACK = "stack"  # the same variants on a new stack against an old one


class Traffic(StrEnum):
    """Whose sessions a step judges."""

    LIVE = "live"
    SYNTHETIC = "synthetic"


class HardStop(StrEnum):
    """What rolls back at the first sight, on an exposed process."""

    OUT_OF_MEMORY = "out_of_memory"
    NAN = "nan"
    RANK_DISAGREEMENT = "rank_disagreement"
    BREAKER_TRIP = "breaker_trip"  # any trip, whatever its reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """How many workers of a stratum a step exposes: exactly one of the two is set."""

    number: int | None = None
    share: Fraction | None = None

    def of(self, num_in_stratum: int) -> int:
        """Workers to expose: at least one, and never more than half of the stratum."""
        wanted = self.number if self.number is not None else self._rounded_up(num_in_stratum)
        return max(1, min(wanted, num_in_stratum // 2)) if num_in_stratum > 1 else 0

    def beside(self, num_new: int, *, num_controls: int) -> int:
        """Workers of a new stack to expose: never more than are on the old one beside them."""
        wanted = self.number if self.number is not None else self._rounded_up(num_new)
        return min(wanted, num_new, num_controls)

    def _rounded_up(self, num_in_stratum: int) -> int:
        assert self.share is not None, "either number or share"
        return -(-self.share.numerator * num_in_stratum // self.share.denominator)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One stage of exposure."""

    name: str
    workers: Workers
    bake: timedelta
    least_sessions: int  # judged and rated sessions of the canary arm before the step may pass
    traffic: Traffic = Traffic.LIVE
    arm_share: float = 1.0  # of the sessions on exposed workers that draw the canary, in (0, 1]
    # Difference of rates that non-inferiority asks to rule out in this step; None: not asked.
    margin: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorGate:
    """Every session of the canary arm averages at least this many frames a second."""

    at_least: float = FLOOR_FPS
    # A session that runs below the floor counts from this much streaming on; None: once judged.
    sustained: timedelta | None = None
    traffic: Traffic | None = None  # asked in steps with this traffic only; None: in all


@dataclass(frozen=True, slots=True, kw_only=True)
class StallGate:
    """No session of the canary arm stands still for longer than this at once.

    An average forgives it: 580 s at 25 fps and one stall of 20 s average 24.17.
    """

    at_most: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionGate:
    """Evidence that the canary does worse than its controls: rolls back at `at_most`, holds before.

    An e-value: of healthy canaries at most 1 / `at_most` are ever rolled back, however long one
    looks.
    """

    at_most: float = 100.0
    hold_at: float = 10.0
    weights: Weights = field(default_factory=Weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class NonInferiorityGate:
    """Evidence that each guardrail's rate is not worse by the step's margin: what promotes."""

    at_least: float = 20.0  # an e-value: 1 / alpha of false promotions


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowRateGate:
    """The canary's slow rate is not shown to exceed what is expected, whatever the control does."""

    # A rate; None: that of the baseline's qualification, and unmeasured where that has none.
    expected: float | None = None
    hold_at: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTimeGate:
    """No part of a step is shown to take longer in the canary than in its controls."""

    hold_at: float = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRatioGate:
    """Arms are recorded in the shares they were drawn in, and rated alike."""

    hold_at: float = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGate:
    """A measure of the picture, reported for the canary's variant, stays on its side of a bound."""

    measure: str
    at_least: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureGate:
    """At most this many sessions of the canary arm fail or are lost."""

    at_most: int = 0
    traffic: Traffic | None = None  # likewise


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGate:
    """An exposed worker keeps memory in bounds, whatever first-forward lengths it has seen."""

    growth_per_length_at_most: int  # bytes retained by the flag for each distinct length
    usage_at_most: float = 0.9  # resident over limit, in (0, 1]
    # Distinct lengths that canary sessions must have met before the gate can pass.
    least_lengths: int = 3
    # Lengths of the declared domain; then growth is forecast to all of them against the headroom.
    num_domain_lengths: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshnessGate:
    """Records of each exposed worker are at most this old; without them nothing passes."""

    at_most: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CoverageGate:
    """Rated canary sessions bring inputs from all over a domain, cut into buckets of one width."""

    least: int  # first-forward length, the domain's first
    most: int  # and its last
    num_buckets: int
    least_met: int  # buckets
    # Of what production sends, the share that may lie in buckets never met, by an upper bound.
    unmet_at_most: float | None = None

    def bucket(self, length: int) -> int | None:
        """Index of the bucket that `length` falls into; None outside the domain."""
        if not self.least <= length <= self.most:
            return None
        return (length - self.least) * self.num_buckets // (self.most - self.least + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preflight:
    """What a worker without viewers must show before a viewer meets the variant."""

    least_length: int  # first-forward lengths from here
    most_length: int  # to there
    num_lengths: int  # spread evenly, both ends included
    retained_at_most: int  # bytes that the flag keeps for a length
    rollback_within: timedelta  # from asking for the fallback until all ranks run it
    within: timedelta  # from its start, draining the worker included; later it is unmeasured

    @property
    def lengths(self) -> tuple[int, ...]:
        """The lengths to run, ascending and all different."""
        width = self.most_length - self.least_length
        last = self.num_lengths - 1
        return tuple(self.least_length + width * index // last for index in range(last + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gates:
    """The questions of a policy. Freshness is always asked; None: not asked, and said so."""

    freshness: FreshnessGate
    floor: FloorGate | None = None
    failures: FailureGate | None = None
    stall: StallGate | None = None
    regression: RegressionGate | None = None
    non_inferiority: NonInferiorityGate | None = None
    slow_rate: SlowRateGate | None = None
    part_time: PartTimeGate | None = None
    sample_ratio: SampleRatioGate | None = None
    memory: MemoryGate | None = None
    coverage: CoverageGate | None = None
    quality: QualityGate | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on time and pace."""

    start_by: timedelta = timedelta(hours=24)  # a pending canary is cancelled after that
    hold_after: timedelta = timedelta(minutes=10)  # without a measurement it is held
    # From the start of a step; a canary that still does not pass then is held, and says why.
    decide_within: timedelta = timedelta(hours=24)
    lease: timedelta = timedelta(seconds=90)
    outcome_horizon: timedelta = timedelta(
        seconds=120
    )  # of streaming, at which a session is judged
    block: timedelta = timedelta(seconds=60)  # sessions that start in one window are one block
    contain_within: timedelta = timedelta(minutes=5)  # later, an unreachable worker is quarantined
    max_flips_per_minute: int = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What a canary must show."""

    name: str
    summary: str
    flag: str | None  # None: for canaries of a stack
    steps: tuple[Step, ...]
    gates: Gates
    hard_stops: frozenset[HardStop]
    limits: Limits
    preflight: Preflight | None  # None: skipped, and said so
    document: str = field(repr=False)  # canonical JSON; its digest is the policy's identity
    digest: str
