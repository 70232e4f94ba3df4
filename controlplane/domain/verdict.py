"""What a gate may say, and what it is asked about."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from controlplane.domain.blocks import Block
from controlplane.domain.evidence import Evidence
from controlplane.domain.policy import Policy, Step


class Verdict(StrEnum):
    """What a gate says. Only `passing` advances a canary; `failing` acts from every phase."""

    PASSING = "passing"
    FAILING = "failing"
    INCONCLUSIVE = "inconclusive"  # measured, and not enough yet
    UNMEASURED = "unmeasured"  # nothing to judge, or too old


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """The answer to one question of the policy."""

    gate: str
    verdict: Verdict
    value: float | None  # in the unit of the limit; None: nothing measured
    limit: float | None
    num_samples: int
    reason: str  # a sentence with the numbers
    failed_at: datetime | None = None  # receipt of the first failing record


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """All gates at one moment."""

    results: tuple[GateResult, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst that any gate says: failing, then unmeasured, then inconclusive."""
        said = {result.verdict for result in self.results}
        for verdict in (Verdict.FAILING, Verdict.UNMEASURED, Verdict.INCONCLUSIVE):
            if verdict in said:
                return verdict
        return Verdict.PASSING if said else Verdict.UNMEASURED

    def result(self, gate: str) -> GateResult:
        """The result of the gate named `gate`, which must have been asked."""
        return next(result for result in self.results if result.gate == gate)

    def first_failing(self) -> GateResult | None:
        """The failing gate whose evidence came first; of two at once the one asked first."""
        failing = [result for result in self.results if result.verdict is Verdict.FAILING]
        return min(failing, key=_failed_at, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is judged: a policy's step, the workers exposed, and what was received about them."""

    policy: Policy
    step: Step
    variant: str
    exposed: frozenset[str]  # names of workers
    exposed_since: datetime | None
    step_since: datetime
    evidence: Evidence
    blocks: tuple[Block, ...] = ()  # in the order they were written, those closed now included
    attempt: int = 1  # of this variant there; evidence to promote counts for less each time
    qualified_slow_rate: float | None = None  # of the baseline, on record; None: none is

    @property
    def has_controls(self) -> bool:
        """Whether the step compares: arms are drawn, or whole workers are arms in every step."""
        return self.step.arm_share < 1 or all(step.arm_share >= 1 for step in self.policy.steps)


def _failed_at(result: GateResult) -> datetime:
    assert result.failed_at is not None, f"{result.gate} fails without a time"
    return result.failed_at
