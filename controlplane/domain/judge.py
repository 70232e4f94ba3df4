"""The verdict on a canary's evidence: one result for each gate, each with its numbers.

Missing, stale or non-finite telemetry is `unmeasured`, never a pass. Nothing here decides what
happens next; `plan.py` does.
"""

from datetime import datetime

from controlplane.domain import gates, preflight
from controlplane.domain.policy import Preflight
from controlplane.domain.verdict import Case, Judgement


def judge(case: Case, *, now: datetime) -> Judgement:
    """Judge every gate of the policy on the evidence of the present step."""
    asked = case.policy.gates
    results = [gates.hard_stops(case), gates.freshness(asked.freshness, case, now=now)]
    if asked.failures:
        results.append(gates.failures(asked.failures, case))
    if asked.floor:
        results.append(gates.floor(asked.floor, case))
    if asked.memory:
        results.append(gates.memory(asked.memory, case, now=now))
    if asked.coverage:
        results.append(gates.coverage(asked.coverage, case))
    if case.policy.preflight:
        # A late report still counts, and a failing one acts from every phase.
        results.append(preflight.result(case.policy.preflight, case))
    results.append(gates.sample(case))
    return Judgement(results=tuple(results))


def judge_preflight(asked: Preflight, case: Case) -> Judgement:
    """Judge what is known before a viewer has met the variant."""
    return Judgement(results=(gates.hard_stops(case), preflight.result(asked, case)))
