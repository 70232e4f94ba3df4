"""What a plan may look at and what it answers: frozen values; the reconciler reads and records."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from controlplane.domain import flag as flags
from controlplane.domain.blocks import Block, Design
from controlplane.domain.canary import Canary, Event
from controlplane.domain.containment import Exposure
from controlplane.domain.evidence import Evidence
from controlplane.domain.flag import Flag
from controlplane.domain.fleet import Fleet, Worker
from controlplane.domain.policy import Policy, Step, Subject
from controlplane.domain.verdict import Case, Judgement


class RequestKind(StrEnum):
    """What a person may ask of a canary."""

    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    PROMOTE = "promote"


class Answer(StrEnum):
    """What became of a request."""

    DONE = "done"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Something a person asked for and no tick has answered yet."""

    id: str
    kind: RequestKind
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestAnswer:
    """The answer to one request, in words for the person."""

    request: Request
    answer: Answer
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Everything a plan may look at, read in one transaction."""

    canary: Canary
    policy: Policy
    catalogue: tuple[Flag, ...]
    fleet: Fleet
    workers: tuple[Worker, ...]  # of the canary's fleet, hardware and stack
    exposures: tuple[Exposure, ...]
    evidence: Evidence
    requests: tuple[Request, ...]
    is_next: bool  # no older live canary of the same fleet and hardware
    tick: timedelta  # between two looks, nominally
    blocks: tuple[Block, ...] = ()  # of evidence, in the order they were written
    qualified_slow_rate: float | None = None  # of the baseline there, on record

    @property
    def step(self) -> Step:
        """The step of the policy that the canary is in."""
        return self.policy.steps[min(self.canary.step, len(self.policy.steps) - 1)]

    @property
    def case(self) -> Case:
        """What the gates are asked about."""
        return Case(
            policy=self.policy,
            step=self.step,
            variant=self.canary.candidate,
            exposed=frozenset(exposure.worker for exposure in self.exposures),
            exposed_since=min((e.exposed_at for e in self.exposures), default=None),
            step_since=self.canary.step_since,
            evidence=self.evidence,
            blocks=self.blocks,
            attempt=self.canary.attempt,
            qualified_slow_rate=self.qualified_slow_rate,
        )

    @property
    def design(self) -> Design:
        """How sessions are gathered into blocks."""
        limits = self.policy.limits
        shares = {step.arm_share for step in self.policy.steps}
        return Design(
            since=self.canary.created_at,
            width=limits.block,
            horizon=limits.outcome_horizon,
            exposed=frozenset(exposure.worker for exposure in self.exposures),
            is_by_worker=all(step.arm_share >= 1 for step in self.policy.steps),
            share_changed_at=self.canary.step_since if len(shares) > 1 else None,
        )

    @property
    def unproven(self) -> Mapping[str, str]:
        """Flag -> variant that exposed workers run, and leave at a rollback."""
        canary = self.canary
        if canary.subject is Subject.FLAG:
            return canary.tested
        fallback = flags.fallback_flags(self.catalogue, canary.hardware)
        return {f: variant for f, variant in canary.variants.items() if fallback.get(f) != variant}

    @property
    def is_canary_only(self) -> bool:
        """Whether what is on trial exists to be caught, and may not be promoted."""
        return any(
            flags.require(self.catalogue, flag).variant(variant).is_canary_only
            for flag, variant in self.canary.tested.items()
        )

    def asked(self, kind: RequestKind) -> Request | None:
        """The oldest pending request of that kind."""
        return next((request for request in self.requests if request.kind is kind), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to record, and why. `event` None and nothing changed: there is nothing to record."""

    canary: Canary  # as it stands afterwards, lease and bake included
    event: Event | None = None
    reason: str = ""
    actor: str = "steadyframe"
    judgement: Judgement | None = None
    expose: tuple[str, ...] = ()  # names of workers to expose from now on, those before included
    exposures: tuple[Exposure, ...] = ()  # with the marks set now
    answers: tuple[RequestAnswer, ...] = ()
    blocks: tuple[Block, ...] = ()  # of evidence, closed now
