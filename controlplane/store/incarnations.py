"""A worker's lives: one incarnation follows another, and what each reports of itself."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select, update

from controlplane.contract import vocabulary
from controlplane.contract.messages import EffectiveReport, RankReport, Registration
from controlplane.domain.errors import ConflictError, InvalidValueError, NotFoundError
from controlplane.store import desired_states, dialect, pins, sessions
from controlplane.store import fleets as fleet_store
from controlplane.store.tables import incarnations, stacks, workers


def begin(conn: Connection, *, registration: Registration, worker_id: str, now: datetime) -> str:
    """Record that an incarnation of a worker lives, end the one before it; return the worker's id.

    The open sessions of the one before are lost from now on. A change of stack ends the pins.

    Args:
        conn: a connection.
        registration: as received.
        worker_id: id for the worker if it is not known yet.
        now: receipt.

    Raises:
        NotFoundError: there is no such fleet.
        ConflictError: the incarnation is over, or another worker's, or has other hardware or stack.
        InvalidValueError: the generation is out of bounds.
    """
    check_generation(registration.generation)
    fleet_id = fleet_store.id_of(conn, registration.fleet)
    stack = vocabulary.stack_digest(registration.stack)
    _put_stack(conn, registration, stack=stack, now=now)
    before = _locked(conn, fleet_id=fleet_id, name=registration.worker)
    is_new_life = _is_new_life(conn, registration, before=before, stack=stack)
    told = _told(registration, stack=stack, now=now)
    if is_new_life:
        told |= _fresh(registration, now=now)
    if before is None:
        told |= {"id": worker_id, "fleet_id": fleet_id, "name": registration.worker}
        _insert(conn, {**told, "reported_generation": registration.generation})
    else:
        worker_id = before.id
        highest = max(before.reported_generation, registration.generation)
        changed = {**told, "reported_generation": highest}
        conn.execute(update(workers).where(workers.c.id == worker_id).values(changed))
        if before.stack != stack:
            pins.remove_all(conn, worker_id=worker_id)
    if is_new_life:
        _succeed(conn, registration, before=before, worker_id=worker_id, stack=stack, now=now)
    return worker_id


def record_effective(
    conn: Connection, *, worker_id: str, report: EffectiveReport, now: datetime
) -> bool:
    """Record what all ranks of the worker run.

    Returns: False, and nothing is recorded, for an incarnation that is not the present one or a
        generation below the one recorded for it: the report is late.

    Raises:
        NotFoundError: there is no such worker.
        InvalidValueError: the generation is out of bounds.
    """
    check_generation(report.generation)
    row = conn.execute(
        dialect.lock_row(conn, select(workers).where(workers.c.id == worker_id))
    ).first()
    if row is None:
        raise NotFoundError("worker", worker_id)
    if row.incarnation != report.incarnation or report.generation < row.effective_generation:
        return False
    changed = {
        "reported_generation": max(row.reported_generation, report.generation),
        "effective_generation": report.generation,
        "effective_flags": dict(report.flags),
        "effective_at": now,
        "flag_bytes": _summed(report.ranks),
        "flag_bytes_at": now,
        "last_seen_at": now,
        "is_break_glass": report.is_break_glass,
        "is_lease_lapsed": report.is_lease_lapsed,
        "refused": report.refused,
    }
    conn.execute(update(workers).where(workers.c.id == worker_id).values(changed))
    return True


def check_generation(generation: int) -> None:
    """Refuse a reported generation that would leave no room for the next. See `desired_states`."""
    if generation >= desired_states.MAX_GENERATION:
        raise InvalidValueError(
            "generation", generation, allowed=f"less than {desired_states.MAX_GENERATION}"
        )


def _put_stack(conn: Connection, registration: Registration, *, stack: str, now: datetime) -> None:
    if conn.execute(select(stacks.c.digest).where(stacks.c.digest == stack)).first() is None:
        row = {"digest": stack, "parts": dict(registration.stack), "first_seen_at": now}
        dialect.upsert(conn, stacks, row)


def _locked(conn: Connection, *, fleet_id: str, name: str) -> Row[Any] | None:
    # Two first registrations of one name at a time: the name, not a row, is what there is to hold.
    dialect.serialise(conn, f"worker {fleet_id} {name}")
    known = (workers.c.fleet_id == fleet_id) & (workers.c.name == name)
    return conn.execute(dialect.lock_row(conn, select(workers).where(known))).first()


def _is_new_life(
    conn: Connection, registration: Registration, *, before: Row[Any] | None, stack: str
) -> bool:
    known = select(incarnations).where(incarnations.c.id == registration.incarnation)
    life = conn.execute(known).first()
    if life is None:
        return True
    who = f"incarnation {registration.incarnation}"
    if before is None or life.worker_id != before.id:
        raise ConflictError(f"{who} belongs to another worker: each process start takes a new one")
    if life.ended_at is not None:
        raise ConflictError(f"{who} is over: a newer one has registered in its place")
    if (life.hardware, life.stack) != (registration.hardware, stack):
        raise ConflictError(f"{who} began with another hardware or stack: restart the worker")
    return False


def _told(registration: Registration, *, stack: str, now: datetime) -> dict[str, object]:
    return {
        "hardware": registration.hardware,
        "stack": stack,
        "address": registration.address,
        "capabilities": registration.capabilities,
        "last_seen_at": now,
    }


def _fresh(registration: Registration, *, now: datetime) -> dict[str, object]:
    """What a new incarnation starts with: its ranks have reported nothing yet."""
    return {
        "incarnation": registration.incarnation,
        "incarnation_since": now,
        "effective_generation": 0,
        "effective_flags": dict(registration.flags),
        "effective_at": None,
        "flag_bytes": {},
        "flag_bytes_at": None,
        "is_break_glass": False,
        "is_lease_lapsed": False,
        "refused": "",
    }


def _insert(conn: Connection, row: dict[str, object]) -> None:
    conn.execute(workers.insert().values(is_cordoned=False, is_quarantined=False, **row))


def _succeed(
    conn: Connection,
    registration: Registration,
    *,
    before: Row[Any] | None,
    worker_id: str,
    stack: str,
    now: datetime,
) -> None:
    if before is not None:
        over = incarnations.c.id == before.incarnation
        conn.execute(update(incarnations).where(over).values(ended_at=now))
        sessions.close_lost(conn, incarnation=before.incarnation, now=now)
    conn.execute(
        incarnations.insert().values(
            id=registration.incarnation,
            worker_id=worker_id,
            hardware=registration.hardware,
            stack=stack,
            started_at=now,
            num_records=0,
            highest_seq=0,
        )
    )


def _summed(ranks: Iterable[RankReport]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for rank in ranks:
        total.update(rank.flag_bytes)
    return dict(total)
