"""Fleets."""

from typing import Any

from sqlalchemy import Connection, Row, select, update

from controlplane.domain.errors import ConflictError, NotFoundError, StaleVersionError
from controlplane.domain.fleet import Fleet, Mode
from controlplane.store import dialect
from controlplane.store.tables import fleets


def insert(conn: Connection, fleet: Fleet) -> None:
    """Add `fleet`.

    Raises:
        ConflictError: there is one of that name.
    """
    dialect.serialise(conn, "fleets")
    if conn.execute(select(fleets.c.id).where(fleets.c.name == fleet.name)).first():
        raise ConflictError(f"there is a fleet named {fleet.name!r} already")
    known = {"id": fleet.id, "name": fleet.name, "is_sample": fleet.is_sample}
    conn.execute(fleets.insert().values(**known, **_changeable(fleet)))


def get(conn: Connection, name: str) -> Fleet:
    """The fleet named `name`.

    Raises:
        NotFoundError: there is none; tells which there are.
    """
    row = conn.execute(select(fleets).where(fleets.c.name == name)).first()
    if row is None:
        known = conn.scalars(select(fleets.c.name).order_by(fleets.c.name).limit(20))
        raise NotFoundError("fleet", name, known=known)
    return _fleet(row)


def list_all(conn: Connection) -> tuple[Fleet, ...]:
    """Every fleet, by name."""
    return tuple(_fleet(row) for row in conn.execute(select(fleets).order_by(fleets.c.name)))


def save(conn: Connection, fleet: Fleet) -> Fleet:
    """Overwrite the fleet that `fleet` was read as, and return it at its next version.

    Raises:
        StaleVersionError: it has changed since.
    """
    changed = {**_changeable(fleet), "version": fleet.version + 1}
    known = (fleets.c.id == fleet.id) & (fleets.c.version == fleet.version)
    if conn.execute(update(fleets).where(known).values(changed)).rowcount != 1:
        raise StaleVersionError("fleet", fleet.name, fleet.version)
    return get(conn, fleet.name)


def id_of(conn: Connection, name: str) -> str:
    """The id of the fleet named `name`. Raises as `get` does."""
    return get(conn, name).id


def _changeable(fleet: Fleet) -> dict[str, object]:
    return {
        "mode": fleet.mode.value,
        "promoted": dict(fleet.promoted),
        "stopped_reason": fleet.stopped_reason,
        "version": fleet.version,
    }


def _fleet(row: Row[Any]) -> Fleet:
    return Fleet(
        id=row.id,
        name=row.name,
        mode=Mode(row.mode),
        promoted=row.promoted,
        stopped_reason=row.stopped_reason,
        version=row.version,
        is_sample=row.is_sample,
    )
