"""Coverage: whether the canary met what production sends, or only what somebody thought of."""

from collections import Counter
from typing import Final

from controlplane.contract.vocabulary import ARM_CANARY
from controlplane.domain import unseen
from controlplane.domain.document import share_text
from controlplane.domain.gates import canary_sessions
from controlplane.domain.policy import CoverageGate
from controlplane.domain.verdict import Case, GateResult, Verdict

# That the share of production never met is above its bound.
_ALPHA: Final = 0.05


def coverage(gate: CoverageGate, case: Case) -> GateResult:
    """Whether rated sessions of the canary arm brought inputs from enough of the domain.

    Of the whole canary, not of the step alone: an input that was met stays met.
    """
    lengths = [
        session.first_forward_length
        for session in canary_sessions(case)
        if session.counts_for_rate() and not session.is_non_compliant
    ]
    buckets = [gate.bucket(length) for length in lengths]
    met = frozenset(bucket for bucket in buckets if bucket is not None)
    outside = buckets.count(None)
    told = (
        f"{len(met)} of {gate.num_buckets} buckets of first-forward lengths met,"
        f" {gate.least_met} asked for"
    )
    if outside:
        told += f"; {outside} sessions outside {gate.least} to {gate.most}"
    is_passing = len(met) >= gate.least_met
    if len(set(lengths)) == 1:
        told += f"; all of one length, {lengths[0]}, which says nothing of any other"
        is_passing = False
    if gate.unmet_at_most is not None:
        share = _unmet(gate, case, met)
        told += f"; {_unmet_words(share)}, {share_text(gate.unmet_at_most)} allowed"
        is_passing = is_passing and share.bound <= gate.unmet_at_most
    return GateResult(
        gate="coverage",
        verdict=Verdict.PASSING if is_passing else Verdict.INCONCLUSIVE,
        value=len(met),
        limit=gate.least_met,
        num_samples=len(lengths),
        reason=told,
    )


def _unmet(gate: CoverageGate, case: Case, met: frozenset[int]) -> unseen.Share:
    """The share of production's own sessions that lies where the canary has never been."""
    production = Counter(
        gate.bucket(session.first_forward_length)  # None: outside the domain, never met
        for session in case.evidence.sessions
        if session.arm != ARM_CANARY and not session.is_synthetic
    )
    return unseen.unmet(production, met, alpha=_ALPHA)


def _unmet_words(share: unseen.Share) -> str:
    if share.estimate is None:
        return "no session of production to compare with"
    return (
        f"{share.estimate:.2%} of {share.num} sessions of production in buckets never met,"
        f" at most {share.bound:.2%} by a 95% bound"
    )
