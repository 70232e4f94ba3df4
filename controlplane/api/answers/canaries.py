"""Answers about canaries, their evidence and the decisions on them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from controlplane.api.answers.form import Answer, Rehearsed
from controlplane.domain.canary import Event, Phase
from controlplane.domain.observation import RequestKind
from controlplane.domain.policy import Subject
from controlplane.domain.verdict import Verdict
from controlplane.services.decisions import Result


class Canary(Answer):
    """A canary; `bake_s` are the seconds of the step that have counted so far.

    One of a stack has no flag, variant and baseline; it has `old_stack` and the `variants` of both.
    """

    id: str
    name: str
    fleet: str
    subject: Subject
    flag: str | None
    variant: str | None
    baseline: str | None
    old_stack: str | None
    variants: dict[str, str]
    hardware: str
    stack: str
    policy_digest: str
    phase: Phase
    step: int
    created_at: datetime
    phase_since: datetime
    step_since: datetime
    baked_until: datetime | None
    lease_until: datetime | None
    num_lease_lapses: int
    reason: str
    version: int
    attempt: int
    bake_s: float


class ChangedCanary(Canary, Rehearsed):
    """A canary that was begun; `ahead` are those that it waits for."""

    ahead: list[str]


class Gate(BaseModel):
    """The answer to one question of a policy; some gates say more than this."""

    model_config = ConfigDict(extra="allow")

    gate: str
    verdict: Verdict
    value: float | None
    limit: float | None
    num_samples: int
    reason: str
    failed_at: datetime | None


class Step(Answer):
    """One step of a canary's policy."""

    name: str
    bake_s: float
    least_sessions: int
    traffic: str
    is_present: bool


class Exposure(Answer):
    """A worker that has run the variant, and how far it is back."""

    worker_id: str
    worker: str
    incarnation: str
    exposed_at: datetime
    flag_bytes_before: int
    contained_at: datetime | None
    verified_at: datetime | None
    quarantined_at: datetime | None


class AskedRequest(Answer):
    """What a person asked of a canary, and what came of it."""

    id: str
    kind: RequestKind
    actor: str
    reason: str
    created_at: datetime
    answer: str | None
    detail: str
    answered_at: datetime | None


class FullCanary(Answer):
    """A canary with all that one looks at."""

    canary: Canary
    policy: str
    steps: list[Step]
    decided_at: datetime | None
    verdict: Verdict | None
    gates: list[Gate]
    workers: list[Exposure]
    requests: list[AskedRequest]


class TakenRequest(Rehearsed):
    """A request that the next tick answers."""

    id: str
    canary: str
    kind: RequestKind
    phase: Phase


class Quality(Answer):
    """What was measured of the picture under a canary's variant."""

    id: str
    canary: str
    measure: str
    value: float
    num_samples: int
    actor: str
    reason: str
    received_at: datetime


class ReportedQuality(Quality, Rehearsed):
    """A report that was kept."""


class Decision(Answer):
    """A judgement with all that went into it; `digest` is of `inputs`.

    In a list, inputs of over 200 KiB are compressed; alone they are not.
    """

    id: str
    canary_id: str
    verdict: Verdict
    gates: list[Gate]
    inputs: dict[str, Any]
    digest: str
    at: datetime


class ExplainedGate(Answer):
    """A gate with its numbers; `margin` is from value to limit, and below 0 beyond it."""

    gate: str
    verdict: Verdict
    value: float | None
    limit: float | None
    margin: float | None
    num_samples: int
    reason: str


class ArmRate(Answer):
    """A rate of one arm, and where it may lie at every look at once with 95 %."""

    arm: Literal["canary", "control"]
    of: Literal["slow", "failed"]
    num_bad: int
    num: int
    rate: float | None
    low: float
    high: float


class Evidence(Answer):
    """What blocks of sessions say of the canary against its controls, as e-values of harm."""

    num_blocks: int
    value: float | None
    highest: float | None
    p_value: float | None
    attributed: str | None
    by_indicator: dict[str, float]
    rates: list[ArmRate]


class Explanation(Answer):
    """Why a canary stands where it stands, in sentences with their numbers."""

    canary: str
    phase: Phase
    answer: str
    decided: str | None
    judged_at: datetime | None
    verdict: Verdict | None
    gates: list[ExplainedGate]
    evidence: Evidence | None
    needs: list[str]
    what_if: list[str]


class Difference(Answer):
    """Where a record is not what judging again gives."""

    where: str
    recorded: Any
    recomputed: Any


class Verified(Answer):
    """What became of judging a decision again; `software` is the version that made it."""

    decision: str
    canary: str
    at: datetime
    result: Result
    said: str
    differences: list[Difference]
    software: str | None


class Transition(Answer):
    """A canary went from one phase to another, or to the next step."""

    sequence: int
    canary_id: str
    event: Event
    phase_from: Phase
    phase_to: Phase
    step: int
    reason: str
    actor: str
    decision_id: str | None
    at: datetime
