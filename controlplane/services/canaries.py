"""Canaries as people ask for them and see them; what moves them is the reconciler."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain import canary as canary_domain
from controlplane.domain import judge
from controlplane.domain.canary import Canary, Phase
from controlplane.domain.errors import ConflictError, InvalidValueError
from controlplane.domain.ledger import DisqualifiedError
from controlplane.domain.observation import RequestKind
from controlplane.services import inputs, observations, policies, starting, starting_stack
from controlplane.services.change import Act, Change
from controlplane.services.starting import Start
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import requests as request_store
from controlplane.store.history import Decision, Transition
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A canary that is asked for: of a variant of a flag, or of a stack."""

    fleet: str
    policy: str
    flag: str | None = None
    variant: str | None = None
    stack: str | None = None  # digest of the new one; then there is no flag
    hardware: str | None = None
    may_repeat: bool = False  # even where the variant is disqualified: for admins


def start(conn: Connection, wanted: Wanted, *, act: Act) -> Change:
    """Begin a canary: pending until a tick finds that it is its turn.

    Raises:
        NotFoundError: no such fleet, flag or policy.
        InvalidValueError: a variant, policy or hardware that does not fit; says which do.
        ConflictError: the fleet is not in a state to run it; says what to do.
        DisqualifiedError: the variant failed there, and who asks may not repeat it.
    """
    found = _found(conn, wanted, now=act.now)
    if found.barred_by and not wanted.may_repeat:
        raise DisqualifiedError(found.barred_by)
    policy = starting.policy_for(conn, wanted.policy, flag=found.flag)
    canary = _pending(
        found,
        name=canary_store.next_name(conn, subject=found.flag.name if found.flag else "stack"),
        policy_digest=policy.digest,
        act=act,
    )
    canary_domain.check_invariants(canary)
    canary_store.insert(conn, canary)
    _audit(conn, canary, "canary.asked_for", act=act)
    return Change(
        subject={**summary(canary), "ahead": found.ahead},
        effects=starting.effects(found, policy, canary.name),
    )


def _found(conn: Connection, wanted: Wanted, *, now: datetime) -> Start:
    if wanted.stack is not None:
        if wanted.flag is not None or wanted.variant is not None:
            allowed = "no flag and no variant beside a stack: it runs what is promoted"
            raise InvalidValueError("flag", wanted.flag or wanted.variant, allowed=allowed)
        return starting_stack.checked(
            conn, fleet=wanted.fleet, stack=wanted.stack, hardware=wanted.hardware, now=now
        )
    if wanted.flag is None or wanted.variant is None:
        missing = "flag" if wanted.flag is None else "variant"
        raise InvalidValueError(missing, None, allowed="a flag and a variant of it, or a stack")
    return starting.checked(
        conn,
        fleet=wanted.fleet,
        flag=wanted.flag,
        variant=wanted.variant,
        hardware=wanted.hardware,
        now=now,
    )


def ask(conn: Connection, name: str, kind: RequestKind, *, act: Act) -> Change:
    """Ask something of a canary; the next tick answers.

    Raises:
        NotFoundError: no canary of that name.
        ConflictError: it is over.
    """
    canary = canary_store.get(conn, name_or_id=name)
    if canary.phase in canary_domain.TERMINAL:
        raise ConflictError(f"{canary.name} is {canary.phase}: nothing can be asked of it any more")
    request_id = act.new_id()
    request_store.insert(
        conn,
        id=request_id,
        canary_id=canary.id,
        kind=kind,
        actor=act.actor,
        reason=act.reason,
        now=act.now,
    )
    _audit(conn, canary, f"canary.{kind}_asked_for", act=act)
    subject = {"id": request_id, "canary": canary.name, "kind": kind, "phase": canary.phase}
    return Change(subject=subject, effects=(_meaning(canary, kind), *_next(conn, canary, kind)))


def list_page(
    conn: Connection, *, fleet: str | None, after: str | None, limit: int
) -> tuple[Mapping[str, object], ...]:
    """Up to `limit` canaries, newest first. Raises: NotFoundError: no fleet of that name."""
    found = canary_store.list_page(conn, fleet=fleet, after=after, limit=limit)
    return tuple(summary(canary) for canary in found)


def show(conn: Connection, name: str, *, now: datetime) -> Mapping[str, object]:
    """One canary with its steps, its gates, exposed workers and requests.

    The gates are judged now while it can still fail, and afterwards those of its last decision.

    Raises:
        NotFoundError: no canary of that name.
    """
    canary = canary_store.get(conn, name_or_id=name)
    policy = policies.of_digest(conn, canary.policy_digest)
    return {
        **_judged(conn, canary, now=now),
        "canary": summary(canary),
        "policy": policy.name,
        "steps": [
            {
                "name": step.name,
                "bake_s": step.bake,
                "least_sessions": step.least_sessions,
                "traffic": step.traffic,
                "is_present": index == canary.step and canary.phase in canary_domain.RUNNING,
            }
            for index, step in enumerate(policy.steps)
        ],
        "workers": canary_store.exposed(conn, canary_id=canary.id),
        "requests": [
            {
                "id": one.request.id,
                "kind": one.request.kind,
                "actor": one.request.actor,
                "reason": one.request.reason,
                "created_at": one.created_at,
                "answer": one.answer,
                "detail": one.detail,
                "answered_at": one.answered_at,
            }
            for one in request_store.of_canary(conn, canary_id=canary.id)
        ],
    }


def _judged(conn: Connection, canary: Canary, *, now: datetime) -> Mapping[str, object]:
    if canary.phase in (*canary_domain.EXPOSED, Phase.PREFLIGHT):
        seen = observations.observe(conn, canary, tick=timedelta(0))
        asked = seen.policy.preflight
        judgement = (
            judge.judge_preflight(asked, seen.case)
            if asked and canary.phase is Phase.PREFLIGHT
            else judge.judge(seen.case, now=now)
        )
        gates = inputs.gates(judgement)
        return {"decided_at": now, "verdict": judgement.verdict, "gates": gates}
    decided = history.decisions_of(conn, canary_id=canary.id, limit=1)
    return {
        "decided_at": decided[0].at if decided else None,
        "verdict": decided[0].verdict if decided else None,
        "gates": decided[0].gates if decided else [],
    }


def decisions(
    conn: Connection, name: str, *, after: str | None, limit: int
) -> tuple[Decision, ...]:
    """Judgements of the canary, newest first. Raises: NotFoundError."""
    canary = canary_store.get(conn, name_or_id=name)
    return history.decisions_of(conn, canary_id=canary.id, after=after, limit=limit)


def transitions(
    conn: Connection, name: str, *, after: int | None, limit: int
) -> tuple[Transition, ...]:
    """What happened to the canary, newest first. Raises: NotFoundError."""
    canary = canary_store.get(conn, name_or_id=name)
    return history.transitions_of(conn, canary_id=canary.id, after=after, limit=limit)


def fleet_of(conn: Connection, name: str) -> str:
    """The fleet that the canary is in. Raises: NotFoundError."""
    return canary_store.get(conn, name_or_id=name).fleet


def summary(canary: Canary) -> Mapping[str, object]:
    """What a list says of one canary; the salt is its own affair."""
    hidden = ("salt", "bake")
    fields = {
        name: getattr(canary, name) for name in Canary.__dataclass_fields__ if name not in hidden
    }
    return {**fields, "subject": canary.subject, "bake_s": canary.bake}


def _pending(found: Start, *, name: str, policy_digest: str, act: Act) -> Canary:
    return Canary(
        id=act.new_id(),
        name=name,
        fleet=found.fleet.name,
        flag=found.flag.name if found.flag else None,
        variant=found.variant.name if found.variant else None,
        baseline=found.baseline,
        old_stack=found.old_stack,
        variants=found.variants,
        hardware=found.hardware,
        stack=found.stack,
        policy_digest=policy_digest,
        salt=act.new_id(),
        phase=Phase.PENDING,
        step=0,
        created_at=act.now,
        phase_since=act.now,
        step_since=act.now,
        bake=timedelta(0),
        baked_until=None,
        lease_until=None,
        num_lease_lapses=0,
        reason=f"asked for by {act.actor}: {act.reason}",
        version=1,
        attempt=found.attempt,
    )


def _meaning(canary: Canary, kind: RequestKind) -> str:
    match kind:
        case RequestKind.PAUSE:
            return f"{canary.name} is held: its workers leave the variant, its bake is kept"
        case RequestKind.RESUME:
            return f"{canary.name} goes on with its step, or its preflight, if it is held"
        case RequestKind.ABORT if canary.phase is Phase.PENDING:
            return f"{canary.name} is cancelled before it began: no worker has run its variant"
        case RequestKind.ABORT:
            return f"{canary.name} ends: its workers go back to {canary.way_back} for good"
        case RequestKind.PROMOTE:
            return (
                f"{canary.name} is promoted without the rest of its bake if every gate passes;"
                " no gate is overruled"
            )


def _next(conn: Connection, canary: Canary, kind: RequestKind) -> tuple[str, ...]:
    """Who has waited for this one to be over, if it will be."""
    if kind not in (RequestKind.ABORT, RequestKind.PROMOTE) or canary.phase is Phase.PENDING:
        return ()
    stratum = (canary.fleet, canary.hardware)
    waiting = [
        one.name
        for one in canary_store.live(conn)
        if (one.fleet, one.hardware) == stratum and one.phase is Phase.PENDING
    ]
    if not waiting:
        return ()
    behind = f"; {', '.join(waiting[1:])} after it" if waiting[1:] else ""
    return (f"{waiting[0]} has waited for it and begins once {canary.name} is over{behind}",)


def _on_trial(canary: Canary) -> Mapping[str, object]:
    if canary.flag is not None:
        return {"flag": canary.flag, "variant": canary.variant}
    return {"stack": canary.stack, "old_stack": canary.old_stack, "variants": canary.variants}


def _audit(conn: Connection, canary: Canary, action: str, *, act: Act) -> None:
    audit_store.append(
        conn,
        actor=act.actor,
        action=action,
        target=canary.name,
        reason=act.reason,
        detail={"fleet": canary.fleet, **_on_trial(canary)},
        now=act.now,
    )
