"""Reads what an explanation of a canary needs: what it is judged on now, or was decided on last."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain import canary as canary_domain
from controlplane.domain import explanation, judge
from controlplane.domain.canary import Canary, Phase
from controlplane.domain.explanation import Decided, Explanation, Subject
from controlplane.domain.verdict import Case, Judgement
from controlplane.services import decisions, inputs, observations, policies
from controlplane.services.codec import UnreadableError
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store.transaction import Connection

# Of a rollback two transitions follow the one that decided it.
_TRANSITIONS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A judgement with the case behind it, as far as they are there."""

    judgement: Judgement | None = None
    at: datetime | None = None
    case: Case | None = None
    is_preflight: bool = False


def explain(conn: Connection, name: str, *, now: datetime) -> Explanation:
    """Why the canary stands where it stands.

    Judged now while it can still fail; else by its last decision, from its stored inputs.

    Raises:
        NotFoundError: no canary of that name.
    """
    canary = canary_store.get(conn, name_or_id=name)
    is_live = canary.phase in (*canary_domain.EXPOSED, Phase.PREFLIGHT)
    judged = _now(conn, canary, now=now) if is_live else _last(conn, canary)
    return explanation.explain(
        Subject(
            canary=canary,
            policy=policies.of_digest(conn, canary.policy_digest),
            exposures=canary_store.exposed(conn, canary_id=canary.id),
            decided=_decided(conn, canary),
            ahead=_ahead(conn, canary) if canary.phase is Phase.PENDING else (),
            judgement=judged.judgement,
            judged_at=judged.at,
            case=judged.case,
            is_preflight=judged.is_preflight,
        )
    )


def _now(conn: Connection, canary: Canary, *, now: datetime) -> _Judged:
    seen = observations.observe(conn, canary, tick=timedelta(0))
    asked = seen.policy.preflight
    if canary.phase is not Phase.PREFLIGHT:
        return _Judged(judgement=judge.judge(seen.case, now=now), at=now, case=seen.case)
    if asked is None:
        return _Judged()
    judgement = judge.judge_preflight(asked, seen.case)
    return _Judged(judgement=judgement, at=now, case=seen.case, is_preflight=True)


def _last(conn: Connection, canary: Canary) -> _Judged:
    newest = history.decisions_of(conn, canary_id=canary.id, limit=1)
    if not newest:
        return _Judged()
    try:
        judgement = inputs.judgement(newest[0].gates)
        kept = decisions.get(conn, newest[0].id).inputs
        if not inputs.is_recalled(kept):
            return _Judged(judgement=judgement, at=newest[0].at)
        recalled = inputs.recalled(kept, history.blocks_of(conn, canary_id=canary.id))
    except UnreadableError:
        # `decision verify` says what is wrong with it; nothing is explained by a damaged record.
        return _Judged()
    return _Judged(
        judgement=judgement,
        at=newest[0].at,
        case=recalled.case,
        is_preflight=recalled.asked is inputs.Asked.PREFLIGHT,
    )


def _decided(conn: Connection, canary: Canary) -> Decided | None:
    found = history.transitions_of(conn, canary_id=canary.id, limit=_TRANSITIONS)
    return explanation.deciding(
        Decided(event=one.event, at=one.at, actor=one.actor, reason=one.reason) for one in found
    )


def _ahead(conn: Connection, canary: Canary) -> tuple[str, ...]:
    """Canaries of the same fleet and hardware that run, or wait in front of it."""
    return tuple(
        other.name
        for other in canary_store.live(conn)
        if (other.fleet, other.hardware) == (canary.fleet, canary.hardware)
        and other.id != canary.id
        and (other.phase is not Phase.PENDING or other.created_at < canary.created_at)
    )
