"""The verdict on a canary's evidence: one result for each gate, each with its numbers.

Missing, stale or non-finite telemetry is `unmeasured`, never a pass. Nothing here decides what
happens next; `plan.py` does.
"""

from collections.abc import Iterator
from datetime import datetime

from controlplane.domain import compared_gates, coverage_gate, gates, memory_gate, preflight
from controlplane.domain.policy import Gates, Preflight
from controlplane.domain.verdict import Case, GateResult, Judgement, Verdict


def judge(case: Case, *, now: datetime) -> Judgement:
    """Judge every gate of the policy on the evidence of the present step."""
    asked = case.policy.gates
    results = [
        gates.hard_stops(case),
        gates.freshness(asked.freshness, case, now=now),
        *_of_sessions(asked, case),
        *_of_blocks(asked, case, now=now),
        *_of_inputs(asked, case, now=now),
    ]
    if case.policy.preflight:
        # A late report still counts, and a failing one acts from every phase.
        results.append(preflight.result(case.policy.preflight, case))
    results.append(gates.sample(case))
    return Judgement(results=tuple(results))


def judge_preflight(asked: Preflight, case: Case) -> Judgement:
    """Judge what is known before a viewer has met the variant."""
    results = [gates.hard_stops(case), preflight.result(asked, case)]
    quality = case.policy.gates.quality
    if quality and case.evidence.qualities:
        # What is known to look wrong is shown to nobody; without a report it is asked about later.
        results.append(gates.quality(quality, case))
    return Judgement(results=tuple(results))


def _of_sessions(asked: Gates, case: Case) -> Iterator[GateResult]:
    traffic = case.step.traffic
    if asked.failures and asked.failures.traffic in (None, traffic):
        yield gates.failures(asked.failures, case)
    if asked.floor and asked.floor.traffic in (None, traffic):
        yield gates.floor(asked.floor, case)
    if asked.stall:
        yield gates.stall(asked.stall, case)


def _of_blocks(asked: Gates, case: Case, *, now: datetime) -> Iterator[GateResult]:
    if asked.regression:
        result = compared_gates.regression(asked.regression, case, now=now)
        # A step without controls, as a soak is, can show no regression; it can hide none either.
        if case.has_controls or result.verdict is Verdict.FAILING:
            yield result
    if not case.has_controls:
        return
    if asked.non_inferiority and case.step.margin is not None:
        yield compared_gates.non_inferiority(asked.non_inferiority, case)
    if asked.slow_rate:
        yield compared_gates.slow_rate(asked.slow_rate, case)
    if asked.part_time:
        yield compared_gates.part_time(asked.part_time, case)
    if asked.sample_ratio:
        yield compared_gates.sample_ratio(asked.sample_ratio, case)


def _of_inputs(asked: Gates, case: Case, *, now: datetime) -> Iterator[GateResult]:
    if asked.memory:
        yield memory_gate.memory(asked.memory, case, now=now)
    if asked.coverage:
        yield coverage_gate.coverage(asked.coverage, case)
    if asked.quality:
        yield gates.quality(asked.quality, case)
