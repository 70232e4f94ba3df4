"""Why a canary stands where it stands, in sentences with their numbers: pure, printed by others.

Everything said is either on record or asked of the judge anew; nothing is said of what nobody
measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from controlplane.domain import compared_gates, comparison, counterfactual, rates
from controlplane.domain.blocks import FAILED_SESSIONS, SLOW
from controlplane.domain.canary import EXPOSED, RUNNING, Canary, Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.document import duration_text, share_text
from controlplane.domain.eprocess import Table
from controlplane.domain.policy import Policy
from controlplane.domain.verdict import Case, GateResult, Judgement, Verdict

# Of a rate's interval: it holds at every look at once with this probability but 1 - it.
ALPHA: Final = 0.05
# Gates whose value has to be at least their limit; of every other it may be at most that.
_AT_LEAST: Final = frozenset({"floor", "non_inferiority", "coverage", "sample", "quality"})
_AFTER: Final = (Event.CONTAINMENT_SEEN, Event.VERIFICATION_SEEN)
_BY_GATE: Final = (Event.GATE_FAILED, Event.HARD_STOPPED)
_BACK: Final = (Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A transition of the canary, as it is on record."""

    event: Event
    at: datetime
    actor: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is to be explained: a canary, and what it was last judged on."""

    canary: Canary
    policy: Policy
    exposures: tuple[Exposure, ...]
    decided: Decided | None  # that brought it where it is; None: it was only asked for
    ahead: tuple[str, ...]  # canaries that it waits for
    judgement: Judgement | None  # of now while it can fail, else of the last decision
    judged_at: datetime | None
    case: Case | None  # behind the judgement; None: not on record
    is_preflight: bool = False  # whether the judgement is of preflight alone


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One gate with its numbers."""

    gate: str
    verdict: Verdict
    value: float | None
    limit: float | None
    margin: float | None  # from the value to the limit, in its unit; below 0: beyond it
    num_samples: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A rate of one arm, and where it may lie, valid at every look."""

    arm: str
    of: str  # slow or failed
    num_bad: int
    num: int
    rate: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What the blocks say of the canary against its controls."""

    num_blocks: int
    value: float | None  # of harm, now; None: the policy does not ask
    highest: float | None
    p_value: float | None  # valid at every look
    attributed: str | None  # the indicator with the largest part
    by_indicator: Mapping[str, float]
    rates: tuple[Rate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer first, then what it rests on, what is missing, and what would change it."""

    canary: str
    phase: Phase
    answer: str
    decided: str | None
    judged_at: datetime | None
    verdict: Verdict | None
    gates: tuple[Gate, ...]
    evidence: Evidence | None
    needs: tuple[str, ...]
    what_if: tuple[str, ...]


def explain(subject: Subject) -> Explanation:
    """The explanation of `subject`, in whatever phase it is."""
    judgement, case = subject.judgement, subject.case
    return Explanation(
        canary=subject.canary.name,
        phase=subject.canary.phase,
        answer=_answer(subject),
        decided=_decided_words(subject.decided),
        judged_at=subject.judged_at,
        verdict=judgement.verdict if judgement else None,
        gates=tuple(_gate(result) for result in judgement.results) if judgement else (),
        evidence=_evidence(case) if case and case.blocks else None,
        needs=tuple(_needs(subject)),
        what_if=tuple(_what_if(subject)),
    )


def deciding(transitions: Iterator[Decided]) -> Decided | None:
    """Of transitions, newest first, the one that was a decision and no mere observation."""
    return next((one for one in transitions if one.event not in _AFTER), None)


def _answer(subject: Subject) -> str:
    canary = subject.canary
    name, variant = canary.name, canary.left_behind
    num = len(subject.exposures)
    num_out = sum(one.is_out for one in subject.exposures)
    num_verified = sum(one.verified_at is not None for one in subject.exposures)
    step = subject.policy.steps[min(canary.step, len(subject.policy.steps) - 1)]
    place = f"step {canary.step + 1} of {len(subject.policy.steps)}, {step.name}"
    workers = f"{num} worker" + "s" * (num != 1)
    verified = f"{num_verified} of {workers}"
    share = share_text(step.arm_share)
    back = f"{name} goes back to {canary.way_back}"
    answers = {
        Phase.PENDING: f"{name} has not begun: no worker has run {variant} for it",
        Phase.PREFLIGHT: f"{name} is in preflight: {variant} is tried where no viewer meets it",
        Phase.PROGRESSING: f"{name} is in {place}: {share} of the sessions on {workers} draw"
        f" {variant}",
        Phase.BAKING: f"{name} bakes, in {place}: it is promoted if every gate still passes then",
        Phase.HELD: f"{name} is held: its workers go back to {canary.way_back}, and a person"
        " decides",
        Phase.PROMOTED: f"{name} is over: {_promoted(canary)}",
        Phase.ROLLING_BACK: f"{back}: {num_out} of {workers} off {variant}",
        Phase.CONTAINED: f"{back}: no viewer meets {variant} any more, and it is verified to be"
        f" gone from {verified}",
        Phase.ROLLED_BACK: f"{name} is over: rolled back to {canary.way_back}, verified on"
        f" {verified}",
        Phase.CANCELLED: f"{name} is over: cancelled before any worker ran {variant} for it",
    }
    return answers[canary.phase]


def _promoted(canary: Canary) -> str:
    if canary.old_stack is not None:
        return f"stack {canary.stack} is qualified for what {canary.old_stack} runs"
    return f"{canary.variant} was promoted in place of {canary.way_back}"


def _decided_words(decided: Decided | None) -> str | None:
    if decided is None:
        return None
    event = decided.event.replace("_", " ")
    return f"{_time(decided.at)}, {event}, by {decided.actor}: {decided.reason}"


def _gate(result: GateResult) -> Gate:
    margin = None
    if result.value is not None and result.limit is not None:
        room = result.limit - result.value
        margin = -room if result.gate in _AT_LEAST else room
    return Gate(
        gate=result.gate,
        verdict=result.verdict,
        value=result.value,
        limit=result.limit,
        margin=margin,
        num_samples=result.num_samples,
        reason=result.reason,
    )


def _evidence(case: Case) -> Evidence:
    gate = case.policy.gates.regression
    found = comparison.regression(case.blocks, gate.weights) if gate else None
    highest = max(1.0, *found.trajectory) if found else None
    return Evidence(
        num_blocks=len(case.blocks),
        value=found.value if found else None,
        highest=highest,
        p_value=min(1.0, 1 / highest) if highest else None,
        attributed=found.attributed if found else None,
        by_indicator=found.by_indicator if found else {},
        rates=tuple(
            rate
            for indicator, words in ((SLOW, "slow"), (FAILED_SESSIONS, "failed"))
            for rate in _rates(comparison.totals(case.blocks, indicator), words)
        ),
    )


def _rates(table: Table, words: str) -> Iterator[Rate]:
    arms = (
        ("canary", table.canary_bad, table.canary),
        ("control", table.control_bad, table.control),
    )
    for arm, bad, num in arms:
        low, high = rates.interval(bad, num, alpha=ALPHA)
        rate = bad / num if num else None
        yield Rate(arm=arm, of=words, num_bad=bad, num=num, rate=rate, low=low, high=high)


def _needs(subject: Subject) -> Iterator[str]:
    canary, limits = subject.canary, subject.policy.limits
    match canary.phase:
        case Phase.PENDING:
            turn = f"{', '.join(subject.ahead)} to be over" if subject.ahead else "its turn"
            yield f"it waits for {turn}, a fleet that enforces, and two workers that fit"
            expires_at = canary.created_at + limits.start_by
            yield f"it is cancelled unless it has begun by {_time(expires_at)}"
        case Phase.PREFLIGHT:
            yield from _needs_preflight(subject)
        case Phase.PROGRESSING | Phase.BAKING:
            yield from _not_passing(subject)
            yield from _needs_time(subject)
        case Phase.HELD:
            yield (
                f"a person: `steadyframe canary resume {canary.name}`, or"
                f" `steadyframe canary abort {canary.name}`"
            )
            withdrawn_at = canary.phase_since + limits.decide_within
            yield f"it is withdrawn after {_time(withdrawn_at)} unless it is resumed"
            yield from _not_passing(subject)
        case Phase.ROLLING_BACK:
            left = [one.worker for one in subject.exposures if not one.is_out]
            off = ", ".join(left) or "its workers"
            yield f"to see {off} off {canary.left_behind} on every rank"
        case Phase.CONTAINED:
            left = [one.worker for one in subject.exposures if not one.is_settled]
            off = ", ".join(left) or "any"
            yield f"to see that nothing of {canary.left_behind} is left on {off}"
        case Phase.ROLLED_BACK if subject.decided and subject.decided.event in _BY_GATE:
            yield f"nothing; to try {canary.left_behind} there again takes an admin"
        case Phase.PROMOTED | Phase.CANCELLED | Phase.ROLLED_BACK:
            yield "nothing: it is over"


def _needs_preflight(subject: Subject) -> Iterator[str]:
    asked = subject.policy.preflight
    if asked is None:
        yield "nothing: its policy has no preflight, and it goes on at the next look"
        return
    yield from _not_passing(subject)
    yield f"it is held without a result by {_time(subject.canary.phase_since + asked.within)}"


def _not_passing(subject: Subject) -> Iterator[str]:
    for result in subject.judgement.results if subject.judgement else ():
        if result.verdict is not Verdict.PASSING and result.gate != "sample":
            yield f"{result.gate} is {result.verdict}: {result.reason}"
    yield from _sessions_to_go(subject)


def _sessions_to_go(subject: Subject) -> Iterator[str]:
    if subject.judgement is None or subject.case is None:
        return
    for result in subject.judgement.results:
        if result.verdict is Verdict.PASSING or result.limit is None:
            continue
        if result.gate == "sample":
            left = int(result.limit) - int(result.value or 0)
            yield f"sample: {left} more of the canary arm's sessions, judged and rated"
        margin = subject.case.step.margin
        if result.gate == "non_inferiority" and margin is not None:
            clean = compared_gates.sessions_to(subject.case, margin=margin, limit=result.limit)
            num = "more canary sessions than can be foreseen"
            if clean is not None:
                num = f"at least {clean} more canary sessions, none of them bad,"
            yield f"non_inferiority: {num} to show a margin of {share_text(margin)}"


def _needs_time(subject: Subject) -> Iterator[str]:
    canary, steps = subject.canary, subject.policy.steps
    step = steps[min(canary.step, len(steps) - 1)]
    left = step.bake - canary.bake
    if left > timedelta(0):
        yield (
            f"{left.total_seconds():.0f} s more of bake under fresh evidence:"
            f" {canary.bake.total_seconds():.0f} of {step.bake.total_seconds():.0f} s so far"
        )
    later = [one.name for one in steps[canary.step + 1 :]]
    if later:
        yield f"then {', '.join(later)}, with gates and a bake of their own"
    within = subject.policy.limits.decide_within
    since = max(canary.step_since, canary.phase_since)
    yield (
        f"it is held if a gate still does not pass at {_time(since + within)},"
        f" {duration_text(within)} after it began this"
    )


def _what_if(subject: Subject) -> Iterator[str]:
    judgement, case, at = subject.judgement, subject.case, subject.judged_at
    phase, decided = subject.canary.phase, subject.decided
    is_back = phase in _BACK
    if judgement is None or at is None:
        return
    is_failing = judgement.verdict is Verdict.FAILING
    if is_back and decided and decided.event not in _BY_GATE:
        yield (
            f"it was no gate that sent it back: {decided.actor} did"
            f" ({decided.event.replace('_', ' ')})"
        )
        return
    if case is None:
        yield "what would have changed it cannot be said: its evidence is not on record in full"
    elif subject.is_preflight:
        if is_failing:
            yield "a report that passes would not have changed it: one that fails is enough"
    elif is_failing and (is_back or phase in EXPOSED):
        yield from counterfactual.if_better(case, judgement, now=at)
    elif phase in RUNNING or phase is Phase.HELD:
        yield from counterfactual.if_worse(case, judgement, now=at)
    elif phase is Phase.PROMOTED:
        would = "would have sent it back"
        yield from counterfactual.if_worse(case, judgement, now=at, back=would)


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"
