"""What answers look like, for the OpenAPI schema: nothing is parsed or checked with these.

`views` writes the answers; tests hold the two together, for every operation and over live answers.
"""

from collections.abc import Mapping
from datetime import date, datetime
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from controlplane.contract.messages import DesiredState, Experiment
from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.domain.canary import Event, Phase
from controlplane.domain.desired import Layer
from controlplane.domain.flag import Applies
from controlplane.domain.fleet import Mode
from controlplane.domain.ledger import Origin, Standing
from controlplane.domain.observation import RequestKind
from controlplane.domain.policy import Subject
from controlplane.domain.verdict import Verdict
from controlplane.services.decisions import Result

T = TypeVar("T")
Flags = dict[str, str]
Interval = tuple[float, float]


class Answer(BaseModel):
    """One JSON object, with these keys and no others."""

    model_config = ConfigDict(extra="forbid")


class Page(Answer, Generic[T]):
    """Part of a list; `next_cursor` is what to send as `cursor` for the next one."""

    items: list[T]
    next_cursor: str | None


class Rehearsed(Answer):
    """What a change would do, in words, the most important first."""

    effects: list[str]


class Alive(Answer):
    """The process answers."""

    status: Literal["alive"]


class Checks(Answer):
    """What readiness is made of."""

    database: bool
    judge: bool


class Readiness(Answer):
    """Whether the process does its work."""

    status: Literal["ready", "not ready"]
    checks: Checks


class Fleet(Answer):
    """A fleet at a glance."""

    name: str
    is_sample: bool
    mode: Mode
    stopped_reason: str | None
    promoted: Flags
    num_workers: int
    num_out_of_service: int
    num_tripped: int
    num_open_sessions: int
    num_live_canaries: int
    oldest_seen_at: datetime | None


class ChangedFleet(Fleet, Rehearsed):
    """A fleet after a change."""


class Trip(Answer):
    """A breaker that is open."""

    reason: str
    at: datetime
    generation: int


class Pin(Answer):
    """An operator's choice for one flag, until it expires."""

    flag: str
    variant: str
    reason: str
    actor: str
    expires_at: datetime


class Worker(Answer):
    """A worker: what it is told, what its ranks run, and whether it is in service."""

    id: str
    fleet: str
    name: str
    hardware: str
    stack: str
    incarnation: str
    incarnation_since: datetime
    address: str
    capabilities: dict[str, list[str]]
    desired_generation: int
    desired_flags: Flags
    effective_generation: int
    effective_flags: Flags
    effective_at: datetime | None
    flag_bytes: dict[str, int]
    flag_bytes_at: datetime | None
    last_seen_at: datetime
    last_record_at: datetime | None
    num_open_sessions: int
    trip: Trip | None
    pins: list[Pin]
    is_cordoned: bool
    is_quarantined: bool
    is_break_glass: bool
    is_lease_lapsed: bool
    is_effective: bool


class ChangedWorker(Worker, Rehearsed):
    """A worker after a change."""


class ExplainedFlag(Answer):
    """Which layer decided one flag, and why."""

    flag: str
    variant: str
    layer: Layer
    reason: str
    desired: str | None
    effective: str | None


class Explained(Answer):
    """Why a worker runs what it runs."""

    fleet: str
    worker: str
    generation: int
    effective_generation: int
    is_effective: bool
    experiment: Experiment | None
    reasons: list[ExplainedFlag]


class Variant(Answer):
    """One way to compute the same thing."""

    name: str
    summary: str
    is_canary_only: bool


class Flag(Answer):
    """A kernel switch; `fallback` by hardware, `*` for any other."""

    name: str
    summary: str
    applies: Applies
    plain: str
    variants: list[Variant]
    fallback: Flags


class Policy(Answer):
    """A policy, without its document."""

    name: str
    flag: str | None  # none: it is for canaries of a stack
    summary: str
    digest: str
    created_at: datetime


class FullPolicy(Policy):
    """A policy with its canonical document, and what it asks in words."""

    document: dict[str, Any]
    describes: list[str]


class ChangedPolicy(Policy, Rehearsed):
    """A policy that was kept."""


class Draft(Answer):
    """A policy that holds together, in canonical form, and what it asks in words."""

    policy: dict[str, Any]
    describes: list[str]


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


class Basis(Answer):
    """What the canary's own arm did: in sessions, or in processes where those were the arm."""

    num_rated: int
    num_slow: int
    num_sessions: int
    num_failed: int


class Qualification(Answer):
    """A record of the ledger; without `fleet` it holds in every fleet."""

    number: int
    standing: Standing
    origin: Origin
    flag: str
    variant: str
    hardware: str
    stack: str
    fleet: str | None
    canary: str | None
    decision: str | None
    evidence_digest: str | None
    basis: Basis | None
    slow_rate: float | None
    failure_rate: float | None
    actor: str
    reason: str
    created_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    revoked_reason: str | None


class ChangedQualification(Qualification, Rehearsed):
    """A record that was revoked."""


class PastQualification(Qualification):
    """A record among all of its variant, hardware and stack."""

    is_current: bool


class FullQualification(PastQualification):
    """A record with its history; `attempt` is the number that the next canary of it has."""

    attempt: int
    history: list[PastQualification]


class Attested(Rehearsed):
    """What was attested: the numbers of the new records."""

    fleet: str
    flag: str
    variant: str
    numbers: list[int]


class Session(Answer):
    """A session that is over."""

    week: str
    id: str
    fleet: str
    worker: str
    incarnation: str
    hardware: str
    stack: str
    canary: str | None
    arm: str | None
    flags: Flags
    is_synthetic: bool
    is_mixed: bool
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    reason: Reason | None
    detail: str
    num_frames: int
    num_first_chunk_frames: int
    streamed_s: float
    viewer_wait_s: float
    num_late_chunks: int
    longest_stall_ms: float
    first_forward_length: int
    fps: float | None


class Total(Answer):
    """Sessions of one week and fleet; rates with their 95 % intervals."""

    week: str
    starts_on: date
    ends_on: date
    fleet: str
    is_sample: bool
    num_sessions: int
    num_rated: int
    num_slow: int
    num_very_slow: int
    num_failed: int
    num_viewer_limited: int
    slow_rate: float | None
    slow_interval: Interval | None
    very_slow_rate: float | None
    very_slow_interval: Interval | None
    failure_rate: float | None
    failure_interval: Interval | None


class Week(Total):
    """The same for one stratum and set of variants; kinds of sessions apart."""

    hardware: str
    stack: str
    flags: Flags
    is_mixed: bool
    is_synthetic: bool
    is_imported: bool


class Weekly(Page[Week]):
    """Whole weeks, oldest first; `totals` without synthetic sessions."""

    totals: list[Total]
    anchor: date | None
    since: date = Field(alias="from")
    until: date = Field(alias="to")


class Act(Answer):
    """Who did what and why; each hash is of the row and of the hash before."""

    sequence: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str


class Token(Answer):
    """A token, without what it is."""

    id: str
    name: str
    role: str
    fleet: str | None
    worker: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ChangedToken(Token, Rehearsed):
    """A token that was changed."""


class MadeToken(ChangedToken):
    """A new token; `token` is shown once, and not when the request is repeated with its key."""

    token: str = ""


class Imported(Rehearsed):
    """What became of an import."""

    fleet: str
    num_imported: int
    num_known: int
    is_sample: bool


_CHANGE = "POST /v1/fleets/{fleet}"
_WORKER = f"{_CHANGE}/workers/{{worker}}"
# By operation: status and form of the answer to what was done. Rehearsals and refusals are the same
# everywhere, and OTLP answers in a form of its own.
ANSWERS: Mapping[str, tuple[int, Any]] = MappingProxyType(
    {
        "GET /livez": (200, Alive),
        "GET /readyz": (200, Readiness),
        "GET /v1/fleets": (200, Page[Fleet]),
        "POST /v1/fleets": (201, ChangedFleet),
        "GET /v1/fleets/{fleet}": (200, Fleet),
        **{
            f"{_CHANGE}/{change}": (200, ChangedFleet)
            for change in ("mode", "stop-the-line", "lift")
        },
        "GET /v1/fleets/{fleet}/workers": (200, Page[Worker]),
        "GET /v1/fleets/{fleet}/workers/{worker}": (200, Worker),
        "GET /v1/fleets/{fleet}/workers/{worker}/explain": (200, Explained),
        "GET /v1/fleets/{fleet}/workers/{worker}/desired": (200, DesiredState),
        f"{_WORKER}/registration": (200, DesiredState),
        **{
            f"{_WORKER}/{change}": (200, ChangedWorker)
            for change in ("pins", "unpin", "cordon", "uncordon", "restore")
        },
        "GET /v1/flags": (200, Page[Flag]),
        "GET /v1/policies": (200, Page[Policy]),
        "POST /v1/policies": (201, ChangedPolicy),
        "POST /v1/policies/lint": (200, Draft),
        "GET /v1/policies/{name}": (200, FullPolicy),
        "GET /v1/canaries": (200, Page[Canary]),
        "POST /v1/canaries": (201, ChangedCanary),
        "GET /v1/canaries/{name}": (200, FullCanary),
        "GET /v1/canaries/{name}/explanation": (200, Explanation),
        "GET /v1/canaries/{name}/decisions": (200, Page[Decision]),
        "GET /v1/canaries/{name}/transitions": (200, Page[Transition]),
        "POST /v1/canaries/{name}/requests": (202, TakenRequest),
        "GET /v1/canaries/{name}/quality": (200, Page[Quality]),
        "POST /v1/canaries/{name}/quality": (201, ReportedQuality),
        "GET /v1/decisions/{decision_id}": (200, Decision),
        "POST /v1/decisions/{decision_id}/verify": (200, Verified),
        "GET /v1/qualifications": (200, Page[Qualification]),
        "GET /v1/qualifications/{number}": (200, FullQualification),
        "POST /v1/qualifications/{number}/revoke": (200, ChangedQualification),
        "POST /v1/fleets/{fleet}/attestations": (201, Attested),
        "GET /v1/sessions": (200, Page[Session]),
        "GET /v1/audit": (200, Page[Act]),
        "GET /v1/tokens": (200, Page[Token]),
        "POST /v1/tokens": (201, MadeToken),
        "POST /v1/tokens/{token_id}/revoke": (200, ChangedToken),
        "GET /v1/reports/weekly": (200, Weekly),
        "POST /v1/imports/sessions": (201, Imported),
    }
)
