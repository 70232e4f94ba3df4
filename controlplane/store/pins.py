"""Operators' choices for single workers, until they expire."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from sqlalchemy import Connection, delete, select

from controlplane.domain.fleet import Pin
from controlplane.store import dialect
from controlplane.store.tables import overrides


def put(conn: Connection, *, worker_id: str, pin: Pin, now: datetime) -> None:
    """Pin a flag; a pin of the same flag is replaced."""
    row = {
        "worker_id": worker_id,
        "flag": pin.flag,
        "variant": pin.variant,
        "reason": pin.reason,
        "actor": pin.actor,
        "created_at": now,
        "expires_at": pin.expires_at,
    }
    dialect.upsert(conn, overrides, row)


def remove(conn: Connection, *, worker_id: str, flag: str) -> bool:
    """Unpin a flag. Returns whether it was pinned."""
    pinned = (overrides.c.worker_id == worker_id) & (overrides.c.flag == flag)
    return conn.execute(delete(overrides).where(pinned)).rowcount == 1


def remove_all(conn: Connection, *, worker_id: str) -> None:
    """Unpin every flag of a worker."""
    conn.execute(delete(overrides).where(overrides.c.worker_id == worker_id))


def of_workers(conn: Connection, worker_ids: Iterable[str]) -> Mapping[str, tuple[Pin, ...]]:
    """The pins of each worker that has any, by flag, expired ones too: who reads has the time."""
    rows = conn.execute(
        select(overrides)
        .where(overrides.c.worker_id.in_(list(worker_ids)))
        .order_by(overrides.c.worker_id, overrides.c.flag)
    )
    pins: dict[str, tuple[Pin, ...]] = {}
    for row in rows:
        pin = Pin(
            flag=row.flag,
            variant=row.variant,
            reason=row.reason,
            actor=row.actor,
            expires_at=row.expires_at,
        )
        pins[row.worker_id] = (*pins.get(row.worker_id, ()), pin)
    return pins
