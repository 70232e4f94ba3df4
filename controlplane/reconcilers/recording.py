"""Writes what was planned: decision, transition, canary, exposures, desired states, all at once."""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from controlplane.domain import digest
from controlplane.domain.canary import Canary, Event, Phase
from controlplane.domain.observation import Observation, Plan
from controlplane.domain.verdict import Verdict
from controlplane.ports import NewId
from controlplane.services import desired_states, inputs, ledger
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import fleets as fleet_store
from controlplane.store import history
from controlplane.store import outbox as outbox_store
from controlplane.store import requests as request_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A judgement that moves its canary, as it is kept."""

    id: str
    verdict: Verdict
    gates: list[dict[str, Any]]
    inputs: dict[str, Any]
    digest: str


def decided(seen: Observation, planned: Plan, *, new_id: NewId, now: datetime) -> Decided | None:
    """The decision in `planned`, ready to be written; None: it has none to keep.

    Apart from `record`, since of a long canary this takes seconds, and nothing may be locked then.
    """
    if planned.event is None or planned.judgement is None:
        return None
    id_ = new_id()
    considered = inputs.of(seen, planned, decision=id_, now=now)
    return Decided(
        id=id_,
        verdict=planned.judgement.verdict,
        gates=inputs.gates(planned.judgement),
        inputs=inputs.stored(considered),
        digest=digest.digest(considered),
    )


def record(
    conn: Connection, seen: Observation, planned: Plan, decision: Decided | None, *, now: datetime
) -> tuple[str, ...]:
    """Record `planned`, with its `decision`, on top of what was `seen`.

    Returns: ids of the workers whose desired state is another now.

    Raises:
        StaleVersionError: the canary has moved since it was observed; nothing is recorded.
    """
    for answer in planned.answers:
        request_store.answer(
            conn, id=answer.request.id, answer=answer.answer, detail=answer.detail, now=now
        )
    _save_marks(conn, seen, planned)
    for block in planned.blocks:
        history.append_block(conn, canary_id=seen.canary.id, block=block)
    if planned.event is None:
        if planned.canary != seen.canary:
            canary_store.save_bake(conn, planned.canary)
        return ()
    canary_store.save(conn, planned.canary, expected_version=seen.canary.version)
    kept = _append_decision(conn, seen, decision, now=now)
    _append_transition(conn, seen, planned, kept, now=now)
    _expose(conn, seen, planned, now=now)
    if planned.canary.phase is Phase.PROMOTED:
        _promote(conn, planned, now=now)
    if planned.event is Event.VERIFICATION_SEEN:
        _settle(conn, seen, planned, now=now)
    return desired_states.refresh(conn, fleet=planned.canary.fleet, now=now)


def _append_decision(
    conn: Connection, seen: Observation, decision: Decided | None, *, now: datetime
) -> dict[str, str]:
    """The decision's id and digest, for the audit log: its chain keeps what was decided on."""
    if decision is None:
        return {}
    history.append_decision(
        conn,
        id=decision.id,
        canary_id=seen.canary.id,
        verdict=decision.verdict,
        gates=decision.gates,
        inputs=decision.inputs,
        digest=decision.digest,
        now=now,
    )
    return {"decision": decision.id, "digest": decision.digest}


def _append_transition(
    conn: Connection,
    seen: Observation,
    planned: Plan,
    kept: dict[str, str],
    *,
    now: datetime,
) -> None:
    assert planned.event is not None, "a transition without an event"
    history.append_transition(
        conn,
        canary_id=seen.canary.id,
        event=planned.event,
        phase_from=seen.canary.phase,
        phase_to=planned.canary.phase,
        step=planned.canary.step,
        reason=planned.reason,
        actor=planned.actor,
        decision_id=kept.get("decision"),
        now=now,
    )
    told = {"canary": seen.canary.name, "event": planned.event.value, "reason": planned.reason}
    audit_store.append(
        conn,
        actor=planned.actor,
        action=f"canary.{planned.event}",
        target=seen.canary.name,
        reason=planned.reason,
        detail={**told, **kept},
        now=now,
    )
    outbox_store.append(conn, topic="canary", body=told, now=now)


def _save_marks(conn: Connection, seen: Observation, planned: Plan) -> None:
    before = {(e.worker_id, e.incarnation): e for e in seen.exposures}
    for exposure in planned.exposures:
        if before.get((exposure.worker_id, exposure.incarnation)) != exposure:
            canary_store.save_marks(conn, canary_id=seen.canary.id, exposure=exposure)
            if exposure.quarantined_at is not None:
                worker_store.set_quarantined(
                    conn, worker_id=exposure.worker_id, is_quarantined=True
                )


def _expose(conn: Connection, seen: Observation, planned: Plan, *, now: datetime) -> None:
    by_name = {worker.name: worker for worker in seen.workers}
    for name in planned.expose:
        worker = by_name.get(name)
        if worker is None:  # exposed before, and on other hardware by now
            continue
        canary_store.expose(
            conn,
            canary_id=seen.canary.id,
            worker_id=worker.id,
            incarnation=worker.incarnation,
            flag_bytes=sum(worker.flag_bytes.get(flag, 0) for flag in seen.unproven),
            now=now,
        )


def _promote(conn: Connection, planned: Plan, *, now: datetime) -> None:
    canary: Canary = planned.canary
    is_proven = ledger.qualify(conn, canary, actor=planned.actor, now=now)
    # A stack is proven for what is promoted already.
    if is_proven and canary.flag is not None and canary.variant is not None:
        fleet = fleet_store.get(conn, canary.fleet)
        promoted = {**fleet.promoted, canary.flag: canary.variant}
        fleet_store.save(conn, replace(fleet, promoted=promoted))


def _settle(conn: Connection, seen: Observation, planned: Plan, *, now: datetime) -> None:
    """Disqualify what failed, and close the breakers that it opened: it is verified to be gone."""
    ledger.disqualify(conn, planned.canary, variants=seen.unproven, now=now)
    verified = {e.worker_id for e in planned.exposures if e.verified_at is not None}
    reason = f"{seen.canary.name} is rolled back and verified"
    for worker in seen.workers:
        if worker.id in verified and worker.trip is not None:
            worker_store.close_trip(conn, worker_id=worker.id, reason=reason, now=now)
