"""Breakers that workers opened by themselves."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, select, update

from controlplane.contract.messages import BreakerTrip
from controlplane.domain.fleet import Trip
from controlplane.store.evidence_tables import breaker_trips


def insert(conn: Connection, *, worker_id: str, trip: BreakerTrip, now: datetime) -> bool:
    """Record that a breaker opened. Returns False for one that is known: a repeat is no second."""
    key = (breaker_trips.c.worker_id == worker_id) & (breaker_trips.c.id == trip.trip)
    if conn.execute(select(breaker_trips.c.id).where(key)).first():
        return False
    conn.execute(
        breaker_trips.insert().values(
            worker_id=worker_id,
            id=trip.trip,
            incarnation=trip.incarnation,
            reason=trip.reason.value,
            flags=dict(trip.flags),
            generation=trip.generation,
            rank=trip.rank,
            session=trip.session,
            canary=trip.canary,
            detail=trip.detail,
            at=now,
        )
    )
    return True


def close_all(conn: Connection, *, worker_id: str, reason: str, now: datetime) -> int:
    """Close every open breaker of the worker. Returns how many there were."""
    is_open = (breaker_trips.c.worker_id == worker_id) & breaker_trips.c.closed_at.is_(None)
    changed = {"closed_at": now, "closed_reason": reason}
    return conn.execute(update(breaker_trips).where(is_open).values(changed)).rowcount


def open_of(conn: Connection, worker_ids: Iterable[str]) -> Mapping[str, Trip]:
    """The newest open breaker of each worker that has one."""
    rows = conn.execute(
        select(breaker_trips)
        .where(breaker_trips.c.worker_id.in_(list(worker_ids)), breaker_trips.c.closed_at.is_(None))
        .order_by(breaker_trips.c.at, breaker_trips.c.id)
    )
    return {
        row.worker_id: Trip(reason=row.reason, at=row.at, generation=row.generation) for row in rows
    }
