"""The questions a policy can ask, each a function from a case to a result with its numbers."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import ARM_CANARY, Outcome, Reason
from controlplane.domain.evidence import MemoryEvidence, SessionEvidence
from controlplane.domain.policy import (
    CoverageGate,
    FailureGate,
    FloorGate,
    FreshnessGate,
    HardStop,
    MemoryGate,
    Traffic,
)
from controlplane.domain.verdict import Case, GateResult, Verdict

# From this many lengths with a buffer each it is growth and not a warm-up. Passing may ask for more
# lengths; failing does not wait for them.
LEAST_RETAINED: Final = 3


def canary_sessions(case: Case) -> tuple[SessionEvidence, ...]:
    """Sessions of the canary arm that take part in the step's kind of traffic."""
    wants_synthetic = case.step.traffic is Traffic.SYNTHETIC
    return tuple(
        session
        for session in case.evidence.sessions
        if session.arm == ARM_CANARY and session.is_synthetic is wants_synthetic
    )


def hard_stops(case: Case) -> GateResult:
    """Whether an exposed worker met what rolls back at first sight.

    Told by the worker's breaker, or by a session of the canary arm that failed of it: whichever
    record comes first.
    """
    hits = sorted(_hits(case))
    if not hits:
        return GateResult(
            gate="hard_stops",
            verdict=Verdict.PASSING,
            value=0,
            limit=0,
            num_samples=len(case.exposed),
            reason="no hard stop on an exposed worker",
        )
    at, reason = hits[0]
    return GateResult(
        gate="hard_stops",
        verdict=Verdict.FAILING,
        value=len(hits),
        limit=0,
        num_samples=len(case.exposed),
        reason=reason,
        failed_at=at,
    )


def _hits(case: Case) -> Iterable[tuple[datetime, str]]:
    stops = case.policy.hard_stops
    for trip in case.evidence.trips:
        if trip.worker in case.exposed and trip.is_on_variant and _stops(trip.reason, stops):
            told = f"{trip.reason} on {trip.worker} under {case.variant}"
            yield trip.at, f"{told}: {trip.detail}" if trip.detail else told
    for session in canary_sessions(case):
        if session.has_failed and session.reason is not None and session.reason.value in stops:
            told = f"{session.reason} on {session.worker} under {case.variant}"
            yield session.updated_at, f"{told}: it ended session {session.id}"


def _stops(reason: Reason, stops: frozenset[HardStop]) -> bool:
    # Going to the fallback on a lapse, by hand or while draining says nothing of the variant.
    if reason in (Reason.LEASE_LAPSED, Reason.BREAK_GLASS, Reason.DRAINED):
        return False
    return HardStop.BREAKER_TRIP in stops or reason.value in stops


def freshness(gate: FreshnessGate, case: Case, *, now: datetime) -> GateResult:
    """Whether each exposed worker has been heard of lately."""
    limit_s = gate.at_most.total_seconds()
    ages_s: dict[str, float] = {}
    for worker in sorted(case.exposed):
        newest = case.evidence.newest_record_at.get(worker)
        if newest is None:
            reason = f"no record of {worker} has been received"
            return _unmeasured("freshness", limit=limit_s, reason=reason)
        # A record from the future is a wrong clock on our side of the receipt: it is not fresh.
        ages_s[worker] = abs((now - newest).total_seconds())
    if not ages_s:
        return _unmeasured("freshness", limit=limit_s, reason="no worker is exposed")
    oldest = max(ages_s, key=lambda worker: (ages_s[worker], worker))
    is_fresh = ages_s[oldest] <= limit_s
    return GateResult(
        gate="freshness",
        verdict=Verdict.PASSING if is_fresh else Verdict.UNMEASURED,
        value=ages_s[oldest],
        limit=limit_s,
        num_samples=len(ages_s),
        reason=f"newest record of {oldest} is {ages_s[oldest]:.1f} s old, {limit_s:g} s allowed",
    )


def failures(gate: FailureGate, case: Case) -> GateResult:
    """Whether too many sessions of the canary arm failed or were lost."""
    sessions = canary_sessions(case)
    failed = sorted((s for s in sessions if s.has_failed), key=lambda s: (s.updated_at, s.id))
    if not sessions:
        return _unmeasured(
            "failures", limit=gate.at_most, reason="no session of the canary arm yet"
        )
    is_failing = len(failed) > gate.at_most
    told = f"{len(failed)} of {len(sessions)} sessions failed, {gate.at_most} allowed"
    if failed:
        first = failed[0]
        told += f"; first: {first.outcome} on {first.worker} ({first.reason or 'no reason'})"
    return GateResult(
        gate="failures",
        verdict=Verdict.FAILING if is_failing else Verdict.PASSING,
        value=len(failed),
        limit=gate.at_most,
        num_samples=len(sessions),
        reason=told,
        failed_at=failed[gate.at_most].updated_at if is_failing else None,
    )


def floor(gate: FloorGate, case: Case) -> GateResult:
    """Whether every rated session of the canary arm held the floor."""
    horizon = case.policy.limits.outcome_horizon
    rates = [
        (session, fps)
        for session in canary_sessions(case)
        for fps in _rates(session, variant=case.variant, horizon=horizon)
        # A non-compliant session is never healthy evidence; what it streamed may still fail.
        if not (session.is_non_compliant and vocabulary.meets_floor(fps, floor=gate.at_least))
    ]
    if not rates:
        reason = "no session of the canary arm has streamed long enough to be rated"
        return _unmeasured("floor", limit=gate.at_least, reason=reason)
    below = [pair for pair in rates if not vocabulary.meets_floor(pair[1], floor=gate.at_least)]
    worst, fps = min(rates, key=lambda pair: (pair[1], pair[0].id))
    return GateResult(
        gate="floor",
        verdict=Verdict.FAILING if below else Verdict.PASSING,
        value=fps,
        limit=gate.at_least,
        num_samples=len(rates),
        reason=(
            f"{len(below)} of {len(rates)} sessions below {gate.at_least:g} fps;"
            f" lowest {fps:.2f} on {worst.worker}"
        ),
        failed_at=min((session.updated_at for session, _ in below), default=None),
    )


def _rates(session: SessionEvidence, *, variant: str, horizon: timedelta) -> Iterable[float]:
    """Rates of a judged session: of its segments on the variant if it changed, else of itself."""
    if not session.is_judged(horizon=horizon) or session.outcome is Outcome.VIEWER_LIMITED:
        return
    for segment in session.segments:
        if segment.variant == variant and segment.fps is not None and segment.counts_for_rate():
            yield segment.fps
    whole = session.counts_for_rate() and not session.is_non_compliant
    if not session.segments and whole and session.fps is not None:
        yield session.fps


def memory(gate: MemoryGate, case: Case, *, now: datetime) -> GateResult:
    """Whether exposed workers keep memory in bounds."""
    limit_bytes = gate.growth_per_length_at_most
    memories = [
        memory
        for memory in sorted(case.evidence.memories, key=lambda memory: memory.worker)
        if memory.worker in case.exposed and _is_recent(memory, case, now=now)
    ]
    missing = case.exposed - {memory.worker for memory in memories}
    failing = [(memory, why) for memory in memories for why in _excesses(memory, gate)]
    if failing:
        memory, why = failing[0]
        return GateResult(
            gate="memory",
            verdict=Verdict.FAILING,
            value=growth_per_length(memory),
            limit=limit_bytes,
            num_samples=len(memory.lengths),
            reason=f"{memory.worker}: {why}",
            failed_at=min(memory.received_at for memory, _ in failing),
        )
    if missing or not memories:
        names = ", ".join(sorted(missing)) or "any exposed worker"
        return _unmeasured("memory", limit=limit_bytes, reason=f"no memory record of {names}")
    if unlimited := [memory.worker for memory in memories if not memory.limit_bytes]:
        reason = f"{', '.join(unlimited)} reports no memory limit, so its usage cannot be judged"
        return _unmeasured("memory", limit=limit_bytes, reason=reason)
    num_lengths = len(_lengths_met(case))
    growth = max(growth_per_length(memory) for memory in memories)
    # Growth over the limit on too few lengths to fail on is no reason to pass either.
    is_passing = num_lengths >= gate.least_lengths and growth <= limit_bytes
    return GateResult(
        gate="memory",
        verdict=Verdict.PASSING if is_passing else Verdict.INCONCLUSIVE,
        value=growth,
        limit=limit_bytes,
        num_samples=num_lengths,
        reason=(
            f"{num_lengths} distinct first-forward lengths met, {gate.least_lengths} asked for;"
            f" {_mib(growth)} kept for each"
        ),
    )


def _lengths_met(case: Case) -> frozenset[int]:
    """Lengths that the variant has met: a variant that keeps nothing for them reports none."""
    return frozenset(
        session.first_forward_length
        for session in canary_sessions(case)
        if session.first_forward_length > 0 and session.streamed_s > 0
    )


def coverage(gate: CoverageGate, case: Case) -> GateResult:
    """Whether rated sessions of the canary arm brought inputs from enough of the domain.

    Of the whole canary, not of the step alone: an input that was met stays met.
    """
    lengths = [
        session.first_forward_length
        for session in canary_sessions(case)
        if session.counts_for_rate() and not session.is_non_compliant
    ]
    met = {gate.bucket(length) for length in lengths} - {None}
    outside = sum(gate.bucket(length) is None for length in lengths)
    told = (
        f"{len(met)} of {gate.num_buckets} buckets of first-forward lengths met,"
        f" {gate.least_met} asked for"
    )
    if outside:
        told += f"; {outside} sessions outside {gate.least} to {gate.most}"
    return GateResult(
        gate="coverage",
        verdict=Verdict.PASSING if len(met) >= gate.least_met else Verdict.INCONCLUSIVE,
        value=len(met),
        limit=gate.least_met,
        num_samples=len(lengths),
        reason=told,
    )


def growth_per_length(memory: MemoryEvidence) -> float:
    """Bytes the flag retains for each distinct first-forward length it retains any for, after one.

    One buffer for all lengths is not growth. Lengths that left nothing do not dilute it: some of
    them come from sessions of the control arm, which never ran the variant.
    """
    retained = [num_bytes for num_bytes in memory.lengths.values() if num_bytes]
    if len(retained) < 2:  # noqa: PLR2004 - growth needs two points
        return 0.0
    return (sum(retained) - min(retained)) / (len(retained) - 1)


def _excesses(memory: MemoryEvidence, gate: MemoryGate) -> Iterable[str]:
    growth = growth_per_length(memory)
    num_retained = sum(num_bytes > 0 for num_bytes in memory.lengths.values())
    is_growth = num_retained >= min(gate.least_lengths, LEAST_RETAINED)
    if is_growth and growth > gate.growth_per_length_at_most:
        yield (
            f"keeps {_mib(growth)} for each distinct first-forward length"
            f" ({num_retained} seen), {_mib(gate.growth_per_length_at_most)} allowed"
        )
    if memory.limit_bytes and memory.resident_bytes > gate.usage_at_most * memory.limit_bytes:
        usage = memory.resident_bytes / memory.limit_bytes
        yield f"uses {usage:.0%} of its memory limit, {gate.usage_at_most:.0%} allowed"


def _is_recent(memory: MemoryEvidence, case: Case, *, now: datetime) -> bool:
    is_since_exposure = case.exposed_since is None or memory.received_at >= case.exposed_since
    return is_since_exposure and now - memory.received_at <= case.policy.gates.freshness.at_most


def sample(case: Case) -> GateResult:
    """Whether enough sessions of the canary arm have been judged and could be rated."""
    horizon = case.policy.limits.outcome_horizon
    num_judged = sum(
        session.is_judged(horizon=horizon)
        and session.counts_for_rate()
        and not session.is_non_compliant
        and session.started_at >= case.step_since
        for session in canary_sessions(case)
    )
    least = case.step.least_sessions
    return GateResult(
        gate="sample",
        verdict=Verdict.PASSING if num_judged >= least else Verdict.INCONCLUSIVE,
        value=num_judged,
        limit=least,
        num_samples=num_judged,
        reason=f"{num_judged} sessions of the canary arm judged, {least} asked for",
    )


def _unmeasured(gate: str, *, limit: float, reason: str) -> GateResult:
    return GateResult(
        gate=gate,
        verdict=Verdict.UNMEASURED,
        value=None,
        limit=limit,
        num_samples=0,
        reason=reason,
    )


def _mib(num_bytes: float) -> str:
    return f"{num_bytes / 2**20:.1f} MiB"
