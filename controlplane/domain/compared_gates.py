"""Gates that compare the canary with its controls, over blocks of sessions that were closed.

A gate that rolls back and a gate that promotes ask different questions of the same blocks. Between
them lies "not known yet", which never advances.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Final

from controlplane.contract.vocabulary import ARM_CANARY
from controlplane.domain import comparison, eprocess, noninferiority, rates
from controlplane.domain.blocks import FAILED_SESSIONS, SLOW, UNRATED, Block
from controlplane.domain.document import share_text
from controlplane.domain.eprocess import Table
from controlplane.domain.evidence import PARTS
from controlplane.domain.gates import unmeasured
from controlplane.domain.policy import (
    NonInferiorityGate,
    PartTimeGate,
    RegressionGate,
    SampleRatioGate,
    SlowRateGate,
    Traffic,
)
from controlplane.domain.verdict import Case, GateResult, Verdict

# Clean blocks that are looked ahead to say how many sessions are still needed.
_MOST_AHEAD: Final = 5000
_LEAST_RATE: Final = 1e-4
_WORDS: Final = {SLOW: "slow", FAILED_SESSIONS: "failed"}


def regression(gate: RegressionGate, case: Case, *, now: datetime) -> GateResult:
    """Whether the canary is shown to do worse than its controls."""
    limit = gate.at_most
    found = comparison.regression(case.blocks, gate.weights)
    # What has once been shown stays shown: later good luck takes nothing back.
    crossed = next(
        (b for b, e in zip(case.blocks, found.trajectory, strict=True) if e >= limit), None
    )
    if crossed is None and (told := _blind(case, now=now)):
        return unmeasured("regression", limit=limit, reason=told)
    verdict = Verdict.PASSING
    if crossed is not None:
        verdict = Verdict.FAILING
    elif found.value >= gate.hold_at or not any(_compares(case, block) for block in case.blocks):
        verdict = Verdict.INCONCLUSIVE
    highest = max(found.trajectory, default=1.0) if crossed else found.value
    return GateResult(
        gate="regression",
        verdict=verdict,
        value=highest,
        limit=limit,
        num_samples=comparison.totals(case.blocks, SLOW).canary,
        reason=_regression_words(case, found, highest=highest, gate=gate),
        failed_at=crossed.closed_at if crossed else None,
    )


def _regression_words(
    case: Case, found: comparison.Regression, *, highest: float, gate: RegressionGate
) -> str:
    if not found.num_blocks:
        return "no block with sessions of both arms is closed yet"
    slow = comparison.totals(case.blocks, SLOW)
    told = (
        f"evidence of harm {highest:.3g} of {gate.at_most:g}, most from {found.attributed};"
        f" {_rates(slow, 'slow')}"
    )
    if gate.hold_at <= highest < gate.at_most:
        told += f"; nothing advances from {gate.hold_at:g} on"
    if highest < gate.at_most and (ahead := bad_sessions_to(case, gate, known=found)) is not None:
        one = "one more slow session rolls" if ahead == 1 else f"{ahead} more slow sessions roll"
        told += f"; {one} it back"
    return told


def bad_sessions_to(
    case: Case,
    gate: RegressionGate,
    *,
    most: int = 20,
    known: comparison.Regression | None = None,
) -> int | None:
    """How many slow canary sessions in one more block, otherwise as the last, would roll back.

    Returns: None where more than `most` would be needed, or nothing was compared yet.
    """
    last = next((block for block in reversed(case.blocks) if _compares(case, block)), None)
    if last is None:
        return None
    found = known or comparison.regression(case.blocks, gate.weights)
    (table,) = _of_step(case, last)
    state = found.state
    for bad in range(1, most + 1):
        one_more = replace(
            last, tables={SLOW: (Table(bad, max(table.canary, bad), 0, table.control),)}
        )
        if state.after(one_more).value >= gate.at_most:
            return bad
    return None


def non_inferiority(gate: NonInferiorityGate, case: Case) -> GateResult:
    """Whether each guardrail is shown to be not worse by the step's margin."""
    assert case.step.margin is not None, "a step without a margin under non_inferiority"
    margin = case.step.margin
    # Attempts at one variant spend one alpha between them.
    limit = gate.at_least * 2 ** (case.attempt - 1)
    values = comparison.non_inferiority(
        case.blocks, margin=margin, is_synthetic=_is_synthetic(case)
    )
    least = min(values, key=lambda name: (values[name], name))
    # Of nothing the e-value is 1, which a careless policy may ask for.
    is_passing = values[least] >= limit and any(_compares(case, block) for block in case.blocks)
    told = ", ".join(f"{_WORDS[name]} {value:.3g}" for name, value in sorted(values.items()))
    reason = f"evidence of a margin of {share_text(margin)}: {told}; {limit:g} asked for"
    if not is_passing and (ahead := sessions_to(case, margin=margin, limit=limit)) is not None:
        reason += f"; at least {ahead} more clean canary sessions"
    return GateResult(
        gate="non_inferiority",
        verdict=Verdict.PASSING if is_passing else Verdict.INCONCLUSIVE,
        value=values[least],
        limit=limit,
        num_samples=comparison.totals(case.blocks, SLOW).canary,
        reason=reason,
    )


def sessions_to(case: Case, *, margin: float, limit: float) -> int | None:
    """Canary sessions still needed if none is bad from now on, at the traffic seen so far.

    Returns: None where nothing was compared yet, or it would take longer than one can look ahead.
    """
    needed = 0
    for guardrail in comparison.GUARDRAILS:
        tables = comparison.parity_tables(case.blocks, guardrail, is_synthetic=_is_synthetic(case))
        compared = [table for table in tables if table.is_comparison]
        if not compared:
            return None
        state = noninferiority.folded(compared, margin=margin)
        num_canary = max(1, round(sum(t.canary for t in compared) / len(compared)))
        num_control = max(1, round(sum(t.control for t in compared) / len(compared)))
        clean, ahead = Table(0, num_canary, 0, num_control), 0
        while state.value < limit and ahead < _MOST_AHEAD:
            state, ahead = state.after(clean), ahead + 1
        if state.value < limit:
            return None
        needed = max(needed, ahead * num_canary)
    return needed


def slow_rate(gate: SlowRateGate, case: Case) -> GateResult:
    """Whether the canary's slow rate is not shown to exceed what is expected of it."""
    expected = gate.expected if gate.expected is not None else case.qualified_slow_rate
    if expected is None:
        reason = "no slow rate is on record for the baseline: state `expected` in the policy"
        return unmeasured("slow_rate", limit=gate.hold_at, reason=reason)
    # A rate of zero was never measured to be one, and everything would exceed it.
    expected = min(max(expected, _LEAST_RATE), 1 - _LEAST_RATE)
    num_slow, num_rated = _slow_sessions(case)
    value = rates.one_sample_evidence(num_slow, num_rated, rate=expected)
    is_held = value >= gate.hold_at or not num_rated
    return GateResult(
        gate="slow_rate",
        verdict=Verdict.INCONCLUSIVE if is_held else Verdict.PASSING,
        value=value,
        limit=gate.hold_at,
        num_samples=num_rated,
        reason=(
            f"{num_slow} of {num_rated} canary sessions slow, {share_text(expected)}"
            f" expected: evidence {value:.3g} of {gate.hold_at:g}"
        ),
    )


def part_time(gate: PartTimeGate, case: Case) -> GateResult:
    """Whether no part of a step is shown to take longer than in the controls; which, if one is."""
    measured = [part for part in PARTS if _is_measured(case.blocks, part)]
    if not measured:
        reason = "no block has part times of both arms yet"
        return unmeasured("part_time", limit=gate.hold_at, reason=reason)
    values = {part: comparison.indicator_value(case.blocks, part) for part in measured}
    # The mean: of the largest of several e-values nothing is promised.
    value = eprocess.combined((1.0, one) for one in values.values())
    worst = max(values, key=lambda part: (values[part], part))
    told = ", ".join(f"{part} {one:.3g}" for part, one in values.items())
    is_held = value >= gate.hold_at
    slower = f"{worst} takes longer in the canary" if is_held else "no part is shown to take longer"
    return GateResult(
        gate="part_time",
        verdict=Verdict.INCONCLUSIVE if is_held else Verdict.PASSING,
        value=value,
        limit=gate.hold_at,
        num_samples=comparison.totals(case.blocks, SLOW).canary,
        reason=f"{slower}: evidence {value:.3g} ({told}); held at {gate.hold_at:g}",
    )


def sample_ratio(gate: SampleRatioGate, case: Case) -> GateResult:
    """Whether the arms were recorded in the shares that they were drawn in, and rated alike.

    An arm whose sessions die without a record, or end too soon to be rated, looks healthy in every
    other gate.
    """
    drawn = [s for s in case.evidence.sessions if s.is_drawn and s.started_at >= case.step_since]
    num_canary = sum(session.arm == ARM_CANARY for session in drawn)
    share = case.step.arm_share
    value = 1.0
    if 0 < share < 1:
        value = rates.sample_ratio_evidence(
            (num_canary, len(drawn) - num_canary), (share, 1 - share)
        )
    unrated = comparison.indicator_value(case.blocks, UNRATED)
    mirrored = comparison.indicator_value(_mirrored(case.blocks, UNRATED), UNRATED)
    mean = eprocess.combined((1.0, one) for one in (value, unrated, mirrored))
    ended = comparison.totals(case.blocks, UNRATED)
    return GateResult(
        gate="sample_ratio",
        verdict=Verdict.INCONCLUSIVE if mean >= gate.hold_at else Verdict.PASSING,
        value=mean,
        limit=gate.hold_at,
        num_samples=len(drawn),
        reason=(
            f"{num_canary} of {len(drawn)} sessions in the canary arm, {share_text(share)} drawn:"
            f" evidence {value:.3g}; {_rates(ended, 'without a rate')}:"
            f" evidence {max(unrated, mirrored):.3g}; mean held at {gate.hold_at:g}"
        ),
    )


def _mirrored(blocks: Iterable[Block], indicator: str) -> tuple[Block, ...]:
    """One indicator with the arms changed round: what is unusual in the controls is so too."""
    return tuple(
        replace(
            block,
            tables={
                indicator: tuple(
                    Table(t.control_bad, t.control, t.canary_bad, t.canary)
                    for t in block.tables.get(indicator, ())
                )
            },
        )
        for block in blocks
    )


def _blind(case: Case, *, now: datetime) -> str | None:
    """Why nothing can be compared any more; None while something can, or it is too early to say."""
    patience = case.policy.limits.hold_after
    closed = [block.closed_at for block in case.blocks if _compares(case, block)]
    since = max([*closed, case.step_since])
    if now - since <= patience:
        return None
    return (
        f"no block with sessions of both arms has closed for {(now - since).total_seconds():.0f} s"
    )


def _is_synthetic(case: Case) -> bool:
    return case.step.traffic is Traffic.SYNTHETIC


def _of_step(case: Case, block: Block) -> tuple[Table, ...]:
    return comparison.stratum(block, SLOW, is_synthetic=_is_synthetic(case))


def _compares(case: Case, block: Block) -> bool:
    """Whether the block has sessions of both arms, of the step's kind of traffic."""
    return any(table.is_comparison for table in _of_step(case, block))


def _slow_sessions(case: Case) -> tuple[int, int]:
    """Slow and rated sessions of the canary arm; of whole workers as arms all their sessions."""
    if case.step.arm_share < 1:
        tables = [table for block in case.blocks for table in _of_step(case, block)]
        return sum(t.canary_bad for t in tables), sum(t.canary for t in tables)
    arms = [block.arms[ARM_CANARY] for block in case.blocks if ARM_CANARY in block.arms]
    return sum(arm.num_slow for arm in arms), sum(arm.num_rated for arm in arms)


def _is_measured(blocks: Iterable[Block], part: str) -> bool:
    return any(
        table.is_comparison
        for block in blocks
        for name, tables in block.tables.items()
        if name.startswith(f"{part}.")
        for table in tables
    )


def _rates(table: Table, what: str) -> str:
    def one(bad: int, num: int) -> str:
        return f"{bad} of {num}" + (f" ({bad / num:.2%})" if num else "")

    canary, control = (
        one(table.canary_bad, table.canary),
        one(table.control_bad, table.control),
    )
    return f"{what}: canary {canary}, control {control}"
