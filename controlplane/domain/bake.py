"""What time under fresh evidence is worth: bake of the step, and a lease of the variant renewed."""

from dataclasses import replace
from datetime import datetime, timedelta

from controlplane.domain.canary import RUNNING, Canary
from controlplane.domain.observation import Observation
from controlplane.domain.verdict import Judgement, Verdict


def baked(seen: Observation, judgement: Judgement, *, now: datetime) -> Canary:
    """The canary with the time it has baked since, which is time covered by records of both arms.

    Event time cannot run ahead of the records, so neither a restart nor an idle controller bakes;
    at most two ticks count at once, so a gap in looking does not either.
    """
    reached = event_time(seen)
    is_blind = judgement.verdict in (Verdict.FAILING, Verdict.UNMEASURED)
    if reached is None or is_blind or reached > now:
        return seen.canary
    since = seen.canary.baked_until
    if since is None:
        return replace(seen.canary, baked_until=reached)
    gained = min(max(reached - since, timedelta(0)), 2 * seen.tick)
    return replace(seen.canary, bake=seen.canary.bake + gained, baked_until=max(since, reached))


def event_time(seen: Observation) -> datetime | None:
    """Receipt time up to which both arms are covered by records; None if one has none at all."""
    exposed = {exposure.worker for exposure in seen.exposures}
    newest = seen.evidence.newest_record_at
    of_canary = [newest[worker] for worker in exposed if worker in newest]
    of_control = [at for worker, at in newest.items() if worker not in exposed]
    if not of_control or len(of_canary) < len(exposed) or not exposed:
        return None
    return min(*of_canary, max(of_control))


def renewed(seen: Observation, canary: Canary, judgement: Judgement, *, now: datetime) -> Canary:
    """The canary with its lease renewed, if what was just judged is fresh and nothing fails."""
    if canary.phase not in RUNNING or judgement.verdict is Verdict.FAILING:
        return canary
    has_lapsed = canary.lease_until is not None and now > canary.lease_until
    if has_lapsed:
        return canary
    grace = seen.policy.gates.freshness.at_most
    is_new = now - max(canary.step_since, canary.phase_since) <= grace
    if judgement.result("freshness").verdict is Verdict.PASSING or is_new:
        return replace(canary, lease_until=now + seen.policy.limits.lease)
    return canary
