"""What a policy can and cannot show, said before a canary rests on it.

Every answer is arithmetic or simulation by the folds that judge; nothing here changes a policy.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from controlplane.domain import rates, rehearsal
from controlplane.domain.document import duration_text, share_text
from controlplane.domain.flag import Applies, Flag
from controlplane.domain.policy import Gates, Policy, Step, Traffic
from controlplane.domain.rehearsal import Draw, Streams
from controlplane.domain.rehearsal import Traffic as Served

_ALPHA: Final = 0.05  # of bounds that are stated
_NUM_STREAMS: Final = 200
_NUM_SESSIONS: Final = 400  # of the canary, over which false rollbacks are counted
_MOST_SESSIONS: Final = 20_000
_LEAST_WORKERS: Final = 2
# Of windows, what compares something: below the first it is slow, below the second hopeless.
_OFTEN: Final = 0.5
_HARDLY_EVER: Final = 0.02
# Of healthy canaries, what may be sent back by a gate before it is called out.
_MANY: Final = 0.05
# Share of healthy canaries that a bad worker in the exposed set sends back, whatever the test, when
# whole workers are the arms: docs/benchmarks.md.
_LEMONS: Final = "about one canary in seven"


class Weight(StrEnum):
    """How much an answer asks of its reader."""

    TOLD = "told"
    WARNING = "warning"  # it works, and does other than one may think
    NEVER = "never"  # it cannot happen at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One thing to know about a policy."""

    about: str  # key of the policy
    weight: Weight
    text: str


def answers(
    policy: Policy, *, flag: Flag | None, served: Served | None = None, draw: Draw | None = None
) -> tuple[Answer, ...]:
    """Everything to know.

    Args:
        policy: as it was read.
        flag: that it is for; None: a stack.
        served: what the fleet serves; None: only what holds for any.
        draw: uniform numbers in [0, 1), for simulation; None: nothing is simulated.
    """
    found = [*_always(policy, flag), *_never(policy)]
    if served is not None:
        found += _floor(policy, served)
        found += _quiet(policy, served)
        if draw is not None:
            found += _simulated(policy, served, draw)
    return tuple(found)


def _always(policy: Policy, flag: Flag | None) -> Iterator[Answer]:
    num = sum(step.least_sessions for step in policy.steps)
    excluded = rates.least_rate_excluded(num, alpha=_ALPHA)
    yield _told(
        "steps",
        f"a clean run of all {num} least_sessions excludes a slow rate of {excluded:.3%} and above"
        f" ({1 - _ALPHA:.0%} confidence), and says nothing of a smaller one",
    )
    gates = policy.gates
    if gates.regression:
        yield _told(
            "gates.regression",
            f"at most {share_text(1 / gates.regression.at_most)} of healthy canaries are ever"
            " rolled back by it, however long it looks",
        )
    is_drawn = all(step.arm_share < 1 for step in policy.steps)
    can_draw = flag is not None and flag.applies is not Applies.RESTART
    if gates.regression and not is_drawn and can_draw:
        yield _warning(
            "steps.arm_share",
            "where every session of a worker is the canary's, a worker that is bad in itself is"
            f" taken for a bad variant ({_LEMONS}): draw sessions, such as arm_share: 20%",
        )
    if not gates.regression and any(step.traffic is Traffic.LIVE for step in policy.steps):
        yield _warning(
            "gates", "live steps are compared with no control: ask regression and non_inferiority"
        )
    if gates.regression and not gates.non_inferiority:
        yield _warning(
            "gates",
            "nothing shows that the canary is as good: 2 % slow against 0.7 % passes 400 sessions"
            " of any valid alarm in most runs; ask non_inferiority",
        )
    if not gates.coverage and not gates.memory:
        yield _warning("gates", "inputs of one length only would pass: ask coverage or memory")


def _never(policy: Policy) -> Iterator[Answer]:
    """Limits that can never trip, and steps that can never pass."""
    limits, gates = policy.limits, policy.gates
    for number, step in enumerate(policy.steps):
        if step.bake > limits.decide_within:
            yield _warning(
                f"steps[{number}].bake",
                f"{step.name} bakes for {duration_text(step.bake)}, and after"
                f" {duration_text(limits.decide_within)} the first look that says no holds it",
            )
    num = sum(step.least_sessions for step in policy.steps)
    if gates.failures and gates.failures.at_most >= num:
        yield _never_(
            "gates.failures.at_most",
            f"{gates.failures.at_most} failures are allowed and {num} sessions asked for: a canary"
            " that fails every one of them passes",
        )
    closing = limits.block + limits.outcome_horizon
    if gates.regression and closing > limits.hold_after:
        yield _warning(
            "limits.hold_after",
            f"a block closes up to {duration_text(closing)} after it opened, and evidence counts as"
            f" missing after {duration_text(limits.hold_after)}: regression may never be measured",
        )
    if gates.regression and gates.regression.hold_at <= 1:
        yield _never_(
            "gates.regression.hold_at",
            "evidence of nothing is 1, from which on nothing advances: it can never pass",
        )
    if gates.non_inferiority and gates.non_inferiority.at_least <= 1:
        yield _warning(
            "gates.non_inferiority.at_least", "evidence of nothing is 1, so nothing is asked for"
        )
    if gates.stall and gates.stall.at_most >= limits.outcome_horizon:
        yield _warning(
            "gates.stall.at_most",
            f"a stall below {duration_text(gates.stall.at_most)} passes, longer than most sessions"
            f" are judged for ({duration_text(limits.outcome_horizon)})",
        )
    yield from _never_of_inputs(gates)


def _never_of_inputs(gates: Gates) -> Iterator[Answer]:
    memory, coverage = gates.memory, gates.coverage
    if memory and coverage and memory.least_lengths > coverage.most - coverage.least + 1:
        yield _never_(
            "gates.memory.least_lengths",
            f"{memory.least_lengths} lengths are asked for and the domain has"
            f" {coverage.most - coverage.least + 1}: it can never pass",
        )
    if memory and memory.num_domain_lengths and memory.least_lengths > memory.num_domain_lengths:
        yield _never_(
            "gates.memory.least_lengths",
            f"{memory.least_lengths} lengths are asked for of {memory.num_domain_lengths}: it can"
            " never pass",
        )


def _floor(policy: Policy, served: Served) -> Iterator[Answer]:
    gate = policy.gates.floor
    live = sum(step.least_sessions for step in policy.steps if step.traffic is Traffic.LIVE)
    if gate is None or not live or gate.traffic is Traffic.SYNTHETIC:
        return
    share = 1 - (1 - served.slow_rate) ** live
    text = (
        f"every one of {live} live sessions has to average {gate.at_least:g} fps: at"
        f" {served.slow_rate:.2%} slow sessions {share:.0%} of healthy canaries are rolled back"
    )
    yield (_warning if share > _MANY else _told)("gates.floor", text)


def _quiet(policy: Policy, served: Served) -> Iterator[Answer]:
    """Traffic at which windows have nobody to compare, or a fleet that has."""
    if served.num_workers < _LEAST_WORKERS:
        yield _never_("steps.workers", "one worker cannot be exposed and compared with: it waits")
        return
    if not policy.gates.regression and not policy.gates.non_inferiority:
        return
    for step in policy.steps:
        share = rehearsal.share_compared(policy, step, served)
        if step.arm_share < 1 and share < _OFTEN:
            block = duration_text(policy.limits.block)
            yield (_never_ if share < _HARDLY_EVER else _warning)(
                f"steps.{step.name}",
                f"{step.name}: {share:.1%} of windows of {block} have sessions of both arms at this"
                " traffic, and the others show nothing: widen block, or raise arm_share or workers",
            )


def _simulated(policy: Policy, served: Served, draw: Draw) -> Iterator[Answer]:
    shapes = [(step, rehearsal.shape(policy, step, served)) for step in policy.steps]
    drawn = [(step, shape) for step, shape in shapes if shape is not None]
    if policy.gates.regression and drawn:
        streams = Streams(shape=drawn[0][1], served=served, num=_NUM_STREAMS, draw=draw)
        share = rehearsal.false_rollbacks(
            policy.gates.regression, streams, num_sessions=_NUM_SESSIONS
        )
        yield _told(
            "gates.regression",
            f"{share:.2%} of {_NUM_STREAMS} simulated healthy canaries were rolled back within"
            f" {_NUM_SESSIONS} sessions at {served.slow_rate:.2%} slow",
        )
    num_before = 0
    for step, shape in drawn:
        streams = Streams(shape=shape, served=served, num=_NUM_STREAMS, draw=draw)
        shown = _to_show(policy, step, streams)
        yield _step_answer(policy, step, streams, shown=shown, num_before=num_before)
        num_before = max(num_before, shown or 0)


def _to_show(policy: Policy, step: Step, streams: Streams) -> int | None:
    gate = policy.gates.non_inferiority
    if gate is None or step.margin is None:
        return step.least_sessions
    return rehearsal.sessions_to_promote(
        streams, margin=step.margin, at_least=gate.at_least, most=_MOST_SESSIONS
    )


def _step_answer(
    policy: Policy, step: Step, streams: Streams, *, shown: int | None, num_before: int
) -> Answer:
    """How long the step takes: what earlier steps brought counts towards its evidence."""
    about, shape = f"steps.{step.name}", streams.shape
    if shown is None:
        return _never_(
            about,
            f"{step.name}: half of healthy canaries have not shown a margin of"
            f" {share_text(step.margin or 0)} after {_MOST_SESSIONS} sessions at"
            f" {streams.served.slow_rate:.2%} slow: widen the margin",
        )
    num = max(shown - num_before, step.least_sessions)
    lasts = max(num / shape.canary * shape.lasts, step.bake)
    told = f"{step.name}: {num} canary sessions in the median, {_days(lasts)} at this traffic"
    limit = policy.limits.decide_within
    if lasts > limit:
        return _never_(about, f"{told}, and must be decided within {duration_text(limit)}")
    return _told(about, told)


def _days(lasts: timedelta) -> str:
    hours = lasts.total_seconds() / 3600
    return f"{hours:.1f} h" if hours < 48 else f"{hours / 24:.1f} days"  # noqa: PLR2004 - two days


def _told(about: str, text: str) -> Answer:
    return Answer(about=about, weight=Weight.TOLD, text=text)


def _warning(about: str, text: str) -> Answer:
    return Answer(about=about, weight=Weight.WARNING, text=text)


def _never_(about: str, text: str) -> Answer:
    return Answer(about=about, weight=Weight.NEVER, text=text)
