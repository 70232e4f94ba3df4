"""What happens next to a canary: one event or none, with the reason, from one observation.

Pure. The reconciler observes, calls `plan`, records the answer in one transaction and only then
acts; it decides nothing itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from controlplane.domain import bake, blocks, containment, fleet, judge, preflight
from controlplane.domain import canary as lifecycle
from controlplane.domain.blocks import Block
from controlplane.domain.canary import (
    MAX_LEASE_LAPSES,
    RUNNING,
    TERMINAL,
    Canary,
    Event,
    Phase,
)
from controlplane.domain.containment import Exposure
from controlplane.domain.document import duration_text
from controlplane.domain.fleet import Mode, Worker
from controlplane.domain.observation import (
    Answer,
    Observation,
    Plan,
    Request,
    RequestAnswer,
    RequestKind,
)
from controlplane.domain.policy import Preflight, Subject
from controlplane.domain.policy import Workers as Wanted
from controlplane.domain.verdict import Judgement, Verdict

# A fault of the variant shows on one worker as on many, and each is taken from its viewers.
_PROBED: Final = Wanted(number=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _News:
    """An event with its reason and who caused it."""

    event: Event
    reason: str
    request: Request | None = None


def plan(seen: Observation, *, now: datetime) -> Plan:
    """The next step of the canary seen, by its phase. Never raises for what telemetry can hold."""
    new = _closed_blocks(seen, now=now)
    planned = _planned_by_phase(replace(seen, blocks=(*seen.blocks, *new)), now=now)
    return replace(planned, blocks=new)


def _closed_blocks(seen: Observation, *, now: datetime) -> tuple[Block, ...]:
    """Blocks of evidence that are complete since the last look."""
    sessions, design = seen.evidence.sessions, seen.design
    written = blocks.closed(sessions, design=design, known=seen.blocks, now=now)
    failed = blocks.failed(sessions, design=design, known=seen.blocks, now=now)
    return (*written, failed) if failed else written


def _planned_by_phase(seen: Observation, *, now: datetime) -> Plan:
    phase = seen.canary.phase
    if phase in TERMINAL:
        return _with_answers(Plan(canary=seen.canary, exposures=seen.exposures), seen, None)
    if phase is Phase.PENDING:
        return _planned(seen, _pending(seen, now=now), now=now)
    if phase is Phase.PREFLIGHT:
        return _preflight(seen, now=now)
    if phase in (Phase.ROLLING_BACK, Phase.CONTAINED):
        return _rolling_back(seen, now=now)
    return _exposed(seen, now=now)


def _pending(seen: Observation, *, now: datetime) -> _News | None:
    if abort := seen.asked(RequestKind.ABORT):
        return _News(event=Event.ABORT_REQUESTED, reason=abort.reason, request=abort)
    if seen.fleet.stopped_reason is not None:
        return _News(
            event=Event.ABORT_REQUESTED, reason=f"stop-the-line: {seen.fleet.stopped_reason}"
        )
    if now - seen.canary.created_at > seen.policy.limits.start_by:
        return _News(event=Event.START_EXPIRED, reason="its turn did not come in time")
    if not (seen.is_next and seen.fleet.mode is Mode.ENFORCE and _has_workers(seen, now=now)):
        return None
    return _News(event=Event.STARTED, reason="its turn, with workers to expose and to compare with")


def _has_workers(seen: Observation, *, now: datetime) -> bool:
    """Whether there are workers to expose, and to compare with."""
    eligible = _eligible(seen, now=now)
    if seen.canary.subject is Subject.STACK:
        return bool(eligible) and len(_on_old_stack(seen, now=now)) >= fleet.LEAST_CONTROLS
    return len(eligible) > 1


def _preflight(seen: Observation, *, now: datetime) -> Plan:
    asked = seen.policy.preflight
    if asked is None:
        return _planned(seen, _skipped(seen), now=now)
    judgement = judge.judge_preflight(asked, seen.case)
    news = _bad_news(seen, judgement) or _probed(seen, judgement, asked, now=now)
    return replace(_planned(seen, news, now=now), judgement=judgement)


def _skipped(seen: Observation) -> _News | None:
    if abort := seen.asked(RequestKind.ABORT):
        return _News(event=Event.ABORT_REQUESTED, reason=abort.reason, request=abort)
    if seen.fleet.stopped_reason is not None:
        reason = f"stop-the-line: {seen.fleet.stopped_reason}"
        return _News(event=Event.ABORT_REQUESTED, reason=reason)
    if seen.fleet.mode is not Mode.ENFORCE:
        return None
    reason = "preflight skipped: the policy has none"
    return _News(event=Event.PREFLIGHT_PASSED, reason=reason)


def _probed(
    seen: Observation, judgement: Judgement, asked: Preflight, *, now: datetime
) -> _News | None:
    if pause := seen.asked(RequestKind.PAUSE):
        return _News(event=Event.PAUSED, reason=pause.reason, request=pause)
    result = judgement.result(preflight.GATE)
    if judgement.verdict is Verdict.PASSING:
        return _News(event=Event.PREFLIGHT_PASSED, reason=f"preflight: {result.reason}")
    if now - seen.canary.phase_since > asked.within:
        reason = f"preflight has no result within {asked.within.total_seconds():g} s"
        return _News(event=Event.INCONCLUSIVE, reason=f"{reason}: {result.reason}")
    return None


def _rolling_back(seen: Observation, *, now: datetime) -> Plan:
    exposures = containment.advanced(
        seen.exposures,
        workers=seen.workers,
        canary=seen.canary,
        variants=seen.unproven,
        within=seen.policy.limits.contain_within,
        now=now,
    )
    news = None
    if seen.canary.phase is Phase.ROLLING_BACK:
        if all(exposure.is_out for exposure in exposures):
            # Why it was sent back stays in front: it is what whoever looks wants to know.
            count = len(exposures)
            off = f"{count} off {seen.canary.left_behind}" if count else "no worker ran it"
            reason = f"{seen.canary.reason}; contained: {off}"
            news = _News(event=Event.CONTAINMENT_SEEN, reason=reason)
    elif all(exposure.is_settled for exposure in exposures):
        news = _News(event=Event.VERIFICATION_SEEN, reason=_told(seen, exposures))
    return replace(_planned(seen, news, now=now), exposures=exposures)


def _told(seen: Observation, exposures: Sequence[Exposure]) -> str:
    quarantined = [e.worker for e in exposures if e.quarantined_at and not e.verified_at]
    num_verified = len(exposures) - len(quarantined)
    told = f"{seen.canary.reason}; verified: nothing of it is left on {num_verified}"
    return f"{told}; quarantined: {', '.join(quarantined)}" if quarantined else told


def _exposed(seen: Observation, *, now: datetime) -> Plan:
    judgement = judge.judge(seen.case, now=now)
    if seen.canary.phase in RUNNING:
        baked = bake.baked(seen, judgement, now=now)
        seen = replace(seen, canary=bake.renewed(seen, baked, judgement, now=now))
    news = _bad_news(seen, judgement) or _pause(seen, judgement, now=now)
    if news is None and seen.canary.phase is Phase.HELD:
        news = _resume(seen, judgement) or _withdrawal(seen, judgement, now=now)
    if news is None and seen.canary.phase in RUNNING:
        news = _advance(seen, judgement)
    return replace(_planned(seen, news, now=now), judgement=judgement)


def _bad_news(seen: Observation, judgement: Judgement) -> _News | None:
    """What rolls back from every exposed phase, the most certain first."""
    if seen.fleet.stopped_reason is not None:
        reason = f"stop-the-line: {seen.fleet.stopped_reason}"
        return _News(event=Event.ABORT_REQUESTED, reason=reason)
    if abort := seen.asked(RequestKind.ABORT):
        return _News(event=Event.ABORT_REQUESTED, reason=abort.reason, request=abort)
    if failing := judgement.first_failing():
        event = Event.HARD_STOPPED if failing.gate == "hard_stops" else Event.GATE_FAILED
        return _News(event=event, reason=f"{failing.gate}: {failing.reason}")
    if seen.fleet.mode is not Mode.ENFORCE:
        return _News(event=Event.CONTROL_LOST, reason="the fleet only observes since")
    return None


def _pause(seen: Observation, judgement: Judgement, *, now: datetime) -> _News | None:
    canary = seen.canary
    if canary.phase not in RUNNING:
        return None
    gone = _lapsed_workers(seen)
    if gone or (canary.lease_until is not None and now > canary.lease_until):
        if canary.num_lease_lapses + 1 >= MAX_LEASE_LAPSES:
            return _News(event=Event.CONTROL_LOST, reason="its lease lapsed a second time")
        reason = "its lease lapsed: no fresh evidence to renew it on"
        if gone:
            reason = f"its lease lapsed on {', '.join(gone)}, which no renewal reached in time"
        return _News(event=Event.LEASE_LAPSED, reason=reason)
    if pause := seen.asked(RequestKind.PAUSE):
        return _News(event=Event.PAUSED, reason=pause.reason, request=pause)
    # From resuming on it has that long again: else a canary held for this could never be resumed.
    since = max(canary.step_since, canary.phase_since)
    measured_at = max(since, canary.baked_until or since)
    is_blind = judgement.verdict is Verdict.UNMEASURED
    if is_blind and now - measured_at > seen.policy.limits.hold_after:
        reason = f"unmeasured for over {seen.policy.limits.hold_after}: {_unmeasured(judgement)}"
        return _News(event=Event.INCONCLUSIVE, reason=reason)
    return _undecided(seen, judgement, since=since, now=now)


def _lapsed_workers(seen: Observation) -> tuple[str, ...]:
    """Exposed workers that left the variant by themselves under the state they are told now.

    The lease counts on their clock: it can lapse there while ours was renewed in time.
    """
    exposed = {exposure.worker_id for exposure in seen.exposures}
    return tuple(
        worker.name
        for worker in seen.workers
        if worker.id in exposed
        and worker.is_lease_lapsed
        and worker.effective_generation >= worker.desired_generation
    )


def _unmeasured(judgement: Judgement) -> str:
    return "; ".join(r.reason for r in judgement.results if r.verdict is Verdict.UNMEASURED)


def _undecided(
    seen: Observation, judgement: Judgement, *, since: datetime, now: datetime
) -> _News | None:
    """Nothing goes on for ever: whoever started it should see what is missing."""
    limit = seen.policy.limits.decide_within
    if judgement.verdict is Verdict.PASSING or now - since <= limit:
        return None
    reason = f"still not passing after {duration_text(limit)}: {_not_passing(judgement)}"
    return _News(event=Event.INCONCLUSIVE, reason=reason)


def _not_passing(judgement: Judgement) -> str:
    return "; ".join(
        f"{r.gate}: {r.reason}" for r in judgement.results if r.verdict is not Verdict.PASSING
    )


def _resume(seen: Observation, judgement: Judgement) -> _News | None:
    resume = seen.asked(RequestKind.RESUME)
    if resume is None:
        return None
    is_unproven = (
        seen.policy.preflight is not None
        and judgement.result(preflight.GATE).verdict is not Verdict.PASSING
    )
    event = Event.STARTED if is_unproven else Event.RESUMED
    return _News(event=event, reason=resume.reason, request=resume)


def _withdrawal(seen: Observation, judgement: Judgement, *, now: datetime) -> _News | None:
    """A canary that was held and is not resumed ends: without a decision it is not healthy."""
    limit = seen.policy.limits.decide_within
    if now - seen.canary.phase_since <= limit:
        return None
    missing = _not_passing(judgement)
    reason = f"inconclusive: held for over {duration_text(limit)} and not resumed"
    return _News(event=Event.WITHDRAWN, reason=f"{reason}: {missing}" if missing else reason)


def _advance(seen: Observation, judgement: Judgement) -> _News | None:
    if judgement.verdict is not Verdict.PASSING:
        return None
    canary, step = seen.canary, seen.step
    asked = seen.asked(RequestKind.PROMOTE)
    if asked and not seen.is_canary_only:
        return _News(event=Event.PROMOTE_REQUESTED, reason=asked.reason, request=asked)
    if canary.phase is Phase.PROGRESSING and canary.step == len(seen.policy.steps) - 1:
        left = max(timedelta(0), step.bake - canary.bake).total_seconds()
        baking = f"; it bakes for {left:.0f} s more" if left else "; its bake is complete"
        reason = f"every gate of {step.name} passes{baking}"
        return _News(event=Event.LAST_STEP_PASSED, reason=reason)
    if canary.bake < step.bake:
        return None
    if canary.phase is Phase.PROGRESSING:
        return _News(event=Event.STEP_PASSED, reason=f"every gate of {step.name} passes")
    return _baked_out(seen)


def _baked_out(seen: Observation) -> _News:
    if seen.is_canary_only:
        reason = f"{seen.canary.candidate} passes, but may not be promoted: it is for canaries only"
        return _News(event=Event.INCONCLUSIVE, reason=reason)
    baked, asked = seen.canary.bake.total_seconds(), seen.step.bake.total_seconds()
    reason = f"every gate passes after {baked:.0f} s of bake, {asked:g} s asked for"
    return _News(event=Event.BAKE_PASSED, reason=reason)


def _planned(seen: Observation, news: _News | None, *, now: datetime) -> Plan:
    """The plan that `news` makes: the canary after it, whom to expose, whom to answer."""
    if news is None:
        return _with_answers(Plan(canary=seen.canary, exposures=seen.exposures), seen, None)
    after = lifecycle.apply(seen.canary, news.event, now=now, reason=news.reason)
    if news.event in (Event.PREFLIGHT_PASSED, Event.RESUMED):
        # What was judged so far belongs to an older exposure; the lease starts anew with this one.
        after = replace(after, lease_until=now + seen.policy.limits.lease)
    exposing = news.event in (Event.PREFLIGHT_PASSED, Event.STEP_PASSED, Event.RESUMED)
    if news.event is Event.STARTED and seen.policy.preflight is not None:
        exposing = True
    planned = Plan(
        canary=after,
        event=news.event,
        reason=news.reason,
        actor=news.request.actor if news.request else "steadyframe",
        expose=_to_expose(seen, after, now=now) if exposing else (),
        exposures=seen.exposures,
    )
    return _with_answers(planned, seen, news.request)


def _to_expose(seen: Observation, after: Canary, *, now: datetime) -> tuple[str, ...]:
    is_preflight = after.phase is Phase.PREFLIGHT
    return fleet.chosen_workers(
        _eligible(seen, now=now),
        exposed=(exposure.worker for exposure in seen.exposures),
        wanted=_PROBED if is_preflight else seen.policy.steps[after.step].workers,
        num_controls=len(_on_old_stack(seen, now=now)) if after.subject is Subject.STACK else None,
    )


def _eligible(seen: Observation, *, now: datetime) -> tuple[Worker, ...]:
    return tuple(
        worker
        for worker in seen.workers
        if worker.stratum == (seen.canary.hardware, seen.canary.stack)
        and fleet.is_eligible(worker, variants=seen.canary.tested, now=now)
    )


def _on_old_stack(seen: Observation, *, now: datetime) -> tuple[Worker, ...]:
    """Workers that a new stack is compared with: they run its variants on the old one."""
    canary = seen.canary
    exposed = {exposure.worker_id for exposure in seen.exposures}
    return tuple(
        worker
        for worker in seen.workers
        if worker.stratum == (canary.hardware, canary.old_stack)
        and worker.id not in exposed
        and fleet.runs(worker, canary.variants)
        and fleet.is_eligible(worker, variants=canary.variants, now=now)
    )


def _with_answers(planned: Plan, seen: Observation, done: Request | None) -> Plan:
    """`planned` with an answer for each request: done, or refused with the reason."""
    answers = []
    for request in seen.requests:
        same = done is not None and request.kind is done.kind
        if same:
            answers.append(
                RequestAnswer(request=request, answer=Answer.DONE, detail=planned.reason)
            )
        elif why := _refusal(request, planned.canary, seen):
            answers.append(RequestAnswer(request=request, answer=Answer.REFUSED, detail=why))
    return replace(planned, answers=tuple(answers))


def _refusal(request: Request, after: Canary, seen: Observation) -> str | None:
    """Why a request that was not carried out is refused; every request is answered in one tick."""
    if request.kind is RequestKind.PROMOTE and after.phase in RUNNING:
        if seen.is_canary_only:
            return f"{after.candidate} may not be promoted: it is for canaries only"
        return "a gate does not pass yet: only a canary whose every gate passes can be promoted"
    return f"{request.kind} cannot happen to a canary that is {after.phase}: {after.reason}"
