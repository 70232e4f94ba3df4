"""The questions a policy can ask, each a function from a case to a result with its numbers."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from math import isfinite

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import ARM_CANARY, Outcome, Reason
from controlplane.domain.evidence import SessionEvidence
from controlplane.domain.policy import (
    FailureGate,
    FloorGate,
    FreshnessGate,
    HardStop,
    QualityGate,
    StallGate,
    Traffic,
)
from controlplane.domain.verdict import Case, GateResult, Verdict


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
            return unmeasured("freshness", limit=limit_s, reason=reason)
        # A record from the future is a wrong clock on our side of the receipt: it is not fresh.
        ages_s[worker] = abs((now - newest).total_seconds())
    if not ages_s:
        return unmeasured("freshness", limit=limit_s, reason="no worker is exposed")
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
        return unmeasured("failures", limit=gate.at_most, reason="no session of the canary arm yet")
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
        for fps in _rates(session, variant=case.variant, horizon=horizon, gate=gate)
        # A non-compliant session is never healthy evidence; what it streamed may still fail.
        if not (session.is_non_compliant and vocabulary.meets_floor(fps, floor=gate.at_least))
    ]
    if not rates:
        reason = "no session of the canary arm has streamed long enough to be rated"
        return unmeasured("floor", limit=gate.at_least, reason=reason)
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


def _rates(
    session: SessionEvidence, *, variant: str, horizon: timedelta, gate: FloorGate
) -> Iterable[float]:
    """Rates of a session: of its segments on the variant if it changed, else of itself.

    Of one that is not judged yet only what holds for long enough below the floor already.
    """
    if session.outcome is Outcome.VIEWER_LIMITED:
        return
    if not session.is_judged(horizon=horizon):
        if _is_below(session, gate) and session.fps is not None:
            yield session.fps
        return
    for segment in session.segments:
        if segment.variant == variant and segment.fps is not None and segment.counts_for_rate():
            yield segment.fps
    whole = session.counts_for_rate() and not session.is_non_compliant
    if not session.segments and whole and session.fps is not None:
        yield session.fps


def _is_below(session: SessionEvidence, gate: FloorGate) -> bool:
    is_long = gate.sustained is not None and session.streamed_s >= gate.sustained.total_seconds()
    if not is_long or not session.counts_for_rate() or session.fps is None:
        return False
    return not vocabulary.meets_floor(session.fps, floor=gate.at_least)


def stall(gate: StallGate, case: Case) -> GateResult:
    """Whether no session of the canary arm stood still for too long at once, ended or not."""
    limit_ms = gate.at_most.total_seconds() * 1000
    seen = [
        session
        for session in canary_sessions(case)
        if session.outcome is not Outcome.VIEWER_LIMITED and session.streamed_s > 0
    ]
    if not seen:
        reason = "no session of the canary arm has streamed yet"
        return unmeasured("stall", limit=limit_ms, reason=reason)
    # What is no number was not measured, and is no pass.
    blind = [s for s in seen if not isfinite(s.longest_stall_ms) or s.longest_stall_ms < 0]
    stalled = [s for s in seen if s not in blind and s.longest_stall_ms > limit_ms]
    worst = max((s for s in seen if s not in blind), key=_stall_ms, default=None)
    if blind and not stalled:
        reason = f"session {blind[0].id} on {blind[0].worker} reports no stall time that is one"
        return unmeasured("stall", limit=limit_ms, reason=reason)
    assert worst is not None, "either a session is blind or it has a stall time"
    return GateResult(
        gate="stall",
        verdict=Verdict.FAILING if stalled else Verdict.PASSING,
        value=worst.longest_stall_ms,
        limit=limit_ms,
        num_samples=len(seen),
        reason=(
            f"{len(stalled)} of {len(seen)} sessions stood still for over {limit_ms:.0f} ms;"
            f" longest {worst.longest_stall_ms:.0f} ms on {worst.worker}"
        ),
        failed_at=min((session.updated_at for session in stalled), default=None),
    )


def _stall_ms(session: SessionEvidence) -> tuple[float, str]:
    return session.longest_stall_ms, session.id


def quality(gate: QualityGate, case: Case) -> GateResult:
    """Whether the newest report of the measure is within its bound; without one `unmeasured`."""
    reports = [one for one in case.evidence.qualities if one.measure == gate.measure]
    if not reports:
        reason = f"no {gate.measure} has been reported for {case.variant}"
        return unmeasured("quality", limit=gate.at_least, reason=reason)
    newest = max(reports, key=lambda one: (one.received_at, one.id))
    if not isfinite(newest.value):
        reason = f"the newest {gate.measure} is no number"
        return unmeasured("quality", limit=gate.at_least, reason=reason)
    is_passing = newest.value >= gate.at_least
    return GateResult(
        gate="quality",
        verdict=Verdict.PASSING if is_passing else Verdict.FAILING,
        value=newest.value,
        limit=gate.at_least,
        num_samples=newest.num_samples,
        reason=(
            f"{gate.measure} {newest.value:.12g} over {newest.num_samples} samples,"
            f" {gate.at_least:.12g} asked for"
        ),
        failed_at=None if is_passing else newest.received_at,
    )


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


def unmeasured(gate: str, *, limit: float, reason: str) -> GateResult:
    """Nothing to judge, or too old: what never passes."""
    return GateResult(
        gate=gate,
        verdict=Verdict.UNMEASURED,
        value=None,
        limit=limit,
        num_samples=0,
        reason=reason,
    )
