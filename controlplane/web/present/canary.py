"""The page of one canary: safe or not and why, how far it is, gate by gate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, assert_never

from controlplane.domain.canary import RUNNING, TERMINAL, Event, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.verdict import Verdict
from controlplane.services.pages import CanaryPage
from controlplane.store.history import Decision, Transition
from controlplane.web.present import charts, plots, words
from controlplane.web.present import gates as gate_views
from controlplane.web.present.gates import GateView
from controlplane.web.present.words import Answer, State, Tone

_BACK = (Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK)
# Its end says nothing of what was on trial: no gate failed.
_ENDED = (Event.ABORT_REQUESTED, Event.WITHDRAWN, Event.CONTROL_LOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step of the policy."""

    name: str
    state: State
    asks: str
    countdown: str
    share: float  # of its bake, in percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ExposedView:
    """A worker that has run the variant, and how far it is back."""

    worker: str
    exposed: str
    contained: State
    verified: State


@dataclass(frozen=True, slots=True, kw_only=True)
class EventView:
    """Something that happened."""

    at: str
    what: str
    change: str
    reason: str
    actor: str
    decision_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryView:
    """Everything the page says."""

    name: str
    fleet: str
    answer: Answer
    facts: tuple[tuple[str, str], ...]
    steps: tuple[StepView, ...]
    gates: tuple[GateView, ...]
    judged: str
    exposed: tuple[ExposedView, ...]
    events: tuple[EventView, ...]
    chart: charts.Dots | None
    plot: plots.Plot | None
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionView:
    """One judgement that was recorded."""

    id: str
    at: str
    state: State
    gates: tuple[GateView, ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """A canary in a list."""

    name: str
    fleet: str
    change: str
    state: State
    reason: str
    since: str


def view(page: CanaryPage, *, now: datetime) -> CanaryView:
    """The page of a canary at `now`."""
    shown, canary = page.shown, page.shown["canary"]
    phase = Phase(canary["phase"])
    return CanaryView(
        name=canary["name"],
        fleet=canary["fleet"],
        answer=answer(shown, page.transitions),
        facts=(
            ("phase", f"{words.spoken(phase)} for {words.duration(now - canary['phase_since'])}"),
            ("change", change(canary)),
            ("policy", shown["policy"]),
            ("hardware", canary["hardware"]),
            ("began", words.at(canary["created_at"])),
            ("lease", _lease(canary["lease_until"], now=now)),
        ),
        steps=tuple(_steps(shown["steps"], canary, _ending(page.transitions))),
        gates=gate_views.shown(shown["gates"], now=now),
        judged=_judged(shown, phase, now=now),
        exposed=tuple(_exposed(one, phase, now=now) for one in shown["workers"]),
        events=tuple(_event(one) for one in page.transitions),
        chart=charts.sessions(page.sessions, is_canary=True),
        plot=plots.sessions(page.sessions, page.transitions),
        is_live=phase not in TERMINAL,
    )


def row(canary: Mapping[str, Any], *, now: datetime) -> RowView:
    """A canary in a list."""
    return RowView(
        name=canary["name"],
        fleet=canary["fleet"],
        change=change(canary),
        state=State(tone=tone(Phase(canary["phase"])), word=words.spoken(canary["phase"])),
        reason=canary["reason"],
        since=words.ago(canary["phase_since"], now=now),
    )


def decision(one: Decision) -> DecisionView:
    """A judgement as it was recorded."""
    return DecisionView(
        id=one.id,
        at=words.at(one.at),
        state=State(tone=gate_views.TONES[one.verdict], word=one.verdict),
        gates=gate_views.shown(one.gates, now=one.at),
        digest=one.digest,
    )


def change(canary: Mapping[str, Any]) -> str:
    """What becomes what; of a stack, under which variants."""
    if canary["variant"] is None:
        both = words.flags(canary["variants"])
        return f"stack: {canary['old_stack']} → {canary['stack']}, both with {both}"
    return f"{canary['flag']}: {canary['baseline']} → {canary['variant']}"


def candidate(canary: Mapping[str, Any]) -> str:
    """What is on trial: a variant, or a stack."""
    return str(canary["variant"] or f"stack {canary['stack']}")


def tone(phase: Phase) -> Tone:
    """How a phase is drawn in a list."""
    match phase:
        case Phase.PROMOTED:
            return Tone.GOOD
        case Phase.HELD | Phase.CONTAINED:
            return Tone.WATCH
        case Phase.ROLLING_BACK | Phase.ROLLED_BACK:
            return Tone.BAD
        case Phase.PENDING | Phase.PREFLIGHT | Phase.CANCELLED:
            return Tone.CALM
        case Phase.PROGRESSING | Phase.BAKING:
            return Tone.WATCH
        case _:
            assert_never(phase)


def answer(shown: Mapping[str, Any], transitions: Sequence[Transition] = ()) -> Answer:
    """Whether viewers are safe from this canary, and why; `transitions` come newest first."""
    canary = shown["canary"]
    phase = Phase(canary["phase"])
    tried = "the variant" if canary["variant"] else candidate(canary)
    match phase:
        case Phase.PENDING | Phase.PREFLIGHT:
            return Answer(tone=Tone.CALM, word="Safe", why=f"no session has met {tried} yet")
        case Phase.CANCELLED:
            return Answer(
                tone=Tone.CALM, word="Safe", why=f"cancelled, nobody met it: {canary['reason']}"
            )
        case Phase.PROMOTED:
            return Answer(tone=Tone.GOOD, word="Safe", why=_passed(canary))
        case Phase.PROGRESSING | Phase.BAKING | Phase.HELD:
            return _running(shown, is_held=phase is Phase.HELD)
        case Phase.ROLLING_BACK | Phase.CONTAINED | Phase.ROLLED_BACK:
            return _going_back(shown, phase, why=_why_back(canary, transitions))
        case _:
            assert_never(phase)


def _passed(canary: Mapping[str, Any]) -> str:
    if canary["variant"] is None:
        return f"{candidate(canary)} passed: {words.flags(canary['variants'])} is qualified there"
    return f"{canary['variant']} is promoted: it passed"


def _running(shown: Mapping[str, Any], *, is_held: bool) -> Answer:
    verdict = Verdict(shown["verdict"]) if shown["verdict"] else Verdict.UNMEASURED
    because = next((g["reason"] for g in shown["gates"] if g["verdict"] == verdict), "")
    if verdict is Verdict.FAILING:
        return Answer(tone=Tone.BAD, word="Not safe", why=f"{because}; it is being rolled back")
    if is_held:
        reason = shown["canary"]["reason"]
        back = "baseline" if shown["canary"]["variant"] else "fallback"
        return Answer(tone=Tone.WATCH, word="Held", why=f"{reason}; its workers run the {back}")
    if verdict is Verdict.UNMEASURED:
        return Answer(tone=Tone.WATCH, word="Not known", why=because or "nothing is measured yet")
    if verdict is Verdict.INCONCLUSIVE:
        return Answer(tone=Tone.WATCH, word="Safe so far", why=f"nothing fails; {because}")
    return Answer(tone=Tone.GOOD, word="Safe so far", why="every gate passes")


def _ending(transitions: Sequence[Transition]) -> Transition | None:
    """What sent it back without a failed gate, if that did."""
    begun = (one for one in transitions if one.phase_to is Phase.ROLLING_BACK)
    last = next(begun, None)
    return last if last is not None and last.event in _ENDED else None


def _why_back(canary: Mapping[str, Any], transitions: Sequence[Transition]) -> str:
    ending = _ending(transitions)
    if ending is None:
        return f"it was sent back for: {canary['reason']}"
    told = f"ended by {ending.actor}: {canary['reason']}"
    if ending.phase_from is not Phase.HELD:
        return told
    earlier = (one for one in transitions if one.sequence < ending.sequence)
    held = next((one for one in earlier if one.phase_to is Phase.HELD), None)
    return f"{told}; before, it was held: {held.reason}" if held else told


def _going_back(shown: Mapping[str, Any], phase: Phase, *, why: str) -> Answer:
    workers: Sequence[Exposure] = shown["workers"]
    lost = [one.worker for one in workers if one.quarantined_at is not None]
    tried = _on_trial(shown["canary"])
    if lost:
        told = f"{', '.join(lost)} did not answer and is quarantined; {why}"
        return Answer(tone=Tone.BAD, word="Look at it", why=told)
    if phase is Phase.ROLLING_BACK:
        num_in = sum(not one.is_out for one in workers)
        told = f"{words.count(num_in, 'worker')} still to leave {tried}; {why}"
        return Answer(tone=Tone.BAD, word="Not safe yet", why=told)
    told = f"no viewer meets {tried} any more; {why}"
    if phase is Phase.CONTAINED:
        return Answer(tone=Tone.WATCH, word="Contained", why=told)
    return Answer(tone=Tone.GOOD, word="Safe again", why=told)


def _on_trial(canary: Mapping[str, Any]) -> str:
    """What workers leave at a rollback: the stack stays, the variants on it go."""
    return str(canary["variant"] or f"the variants on trial on stack {canary['stack']}")


def _steps(
    steps: Sequence[Mapping[str, Any]], canary: Mapping[str, Any], ending: Transition | None
) -> list[StepView]:
    return [_step(step, index, canary, ending) for index, step in enumerate(steps)]


def _step(
    step: Mapping[str, Any], index: int, canary: Mapping[str, Any], ending: Transition | None
) -> StepView:
    phase = Phase(canary["phase"])
    bake: timedelta = step["bake_s"]
    asks = (
        f"{words.duration(bake)} of bake, {words.count(step['least_sessions'], 'session')},"
        f" {step['traffic']} traffic"
    )
    if phase is Phase.PROMOTED or index < canary["step"]:
        passed = State(tone=Tone.GOOD, word="passed")
        return StepView(name=step["name"], state=passed, asks=asks, countdown="", share=100.0)
    if index > canary["step"] or phase in (Phase.PENDING, Phase.PREFLIGHT, Phase.CANCELLED):
        ahead = State(tone=Tone.CALM, word="not reached" if phase in TERMINAL else "ahead")
        return StepView(name=step["name"], state=ahead, asks=asks, countdown="", share=0.0)
    done: timedelta = canary["bake_s"]
    share = min(100.0, round(100 * done / bake, 1)) if bake else 100.0
    if phase in _BACK and ending is not None:
        state, countdown = State(tone=Tone.CALM, word="ended here"), ""
    else:
        state, countdown = _present(phase, left=max(timedelta(0), bake - done))
    return StepView(name=step["name"], state=state, asks=asks, countdown=countdown, share=share)


def _present(phase: Phase, *, left: timedelta) -> tuple[State, str]:
    if phase in _BACK:
        return State(tone=Tone.BAD, word="failed here"), ""
    if phase is Phase.HELD:
        return State(tone=Tone.WATCH, word="held"), f"{words.duration(left)} of bake left"
    told = f"{words.duration(left)} of bake left" if left else "bake done, waits for its gates"
    return State(tone=Tone.WATCH, word="running"), told


def _judged(shown: Mapping[str, Any], phase: Phase, *, now: datetime) -> str:
    if shown["decided_at"] is None:
        return "not judged yet"
    if phase in (*RUNNING, Phase.HELD):
        return f"judged for this page at {words.at(now)}, on the newest records"
    return f"as last judged at {words.at(shown['decided_at'])}"


def _lease(until: datetime | None, *, now: datetime) -> str:
    if until is None:
        return "none"
    return f"{words.duration(until - now)} left" if until > now else "lapsed"


def _exposed(one: Exposure, phase: Phase, *, now: datetime) -> ExposedView:
    return ExposedView(
        worker=one.worker,
        exposed=words.ago(one.exposed_at, now=now),
        contained=_mark(one.contained_at, one, phase),
        verified=_mark(one.verified_at, one, phase),
    )


def _mark(moment: datetime | None, one: Exposure, phase: Phase) -> State:
    if moment is not None:
        return State(tone=Tone.GOOD, word="yes", why=words.at(moment))
    if one.quarantined_at is not None:
        return State(tone=Tone.BAD, word="quarantined", why=words.at(one.quarantined_at))
    if phase in _BACK:
        return State(tone=Tone.BAD, word="not yet")
    return State(tone=Tone.CALM, word="not asked")


def _event(one: Transition) -> EventView:
    is_same = one.phase_from is one.phase_to
    return EventView(
        at=words.at(one.at),
        what=_what(one),
        change=words.spoken(one.phase_to)
        if is_same
        else f"{words.spoken(one.phase_from)} → {words.spoken(one.phase_to)}",
        reason=one.reason,
        actor=one.actor,
        decision_id=one.decision_id,
    )


def _what(one: Transition) -> str:
    # A preflight that was judged has its decision: without one the policy asks for none.
    if one.event is Event.PREFLIGHT_PASSED and one.decision_id is None:
        return "no preflight asked"
    return words.spoken(one.event)
