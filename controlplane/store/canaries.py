"""Canaries, under the version check that keeps two writers apart, and the workers they expose."""

from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Column, Connection, Row, Select, func, select, update

from controlplane.domain.canary import TERMINAL, Canary, Phase
from controlplane.domain.containment import Exposure
from controlplane.domain.errors import ConflictError, NotFoundError, StaleVersionError
from controlplane.store import dialect
from controlplane.store import fleets as fleet_store
from controlplane.store.tables import canaries, canary_workers, evidence_blocks, fleets, workers

_MARKS = (
    canary_workers.c.contained_at,
    canary_workers.c.verified_at,
    canary_workers.c.quarantined_at,
)
_DIRECT = tuple(field.name for field in fields(Canary) if field.name != "fleet")


def insert(conn: Connection, canary: Canary) -> None:
    """Add `canary`.

    Raises:
        ConflictError: there is one of that name.
    """
    taken = conn.execute(select(canaries.c.id).where(canaries.c.name == canary.name)).first()
    if taken:
        raise ConflictError(f"there is a canary named {canary.name!r} already")
    fleet_id = fleet_store.id_of(conn, canary.fleet)
    conn.execute(canaries.insert().values(fleet_id=fleet_id, **_row(canary)))


def next_name(conn: Connection, *, subject: str) -> str:
    """The name of the next canary of `subject`, a flag or `stack`; nobody else gets it."""
    dialect.serialise(conn, "canary names")
    prefix = f"{subject.replace('_', '-')}-"
    # Canaries are never deleted, so no number that was given is above the count of such names.
    named = canaries.c.name.startswith(prefix, autoescape=True)
    return f"{prefix}{conn.scalars(select(func.count()).where(named)).one() + 1}"


def get(conn: Connection, *, name_or_id: str) -> Canary:
    """The canary with that name or id.

    Raises:
        NotFoundError: there is none; tells the newest there are.
    """
    named = (canaries.c.name == name_or_id) | (canaries.c.id == name_or_id)
    row = conn.execute(_selected().where(named)).first()
    if row is None:
        newest = select(canaries.c.name).order_by(canaries.c.id.desc()).limit(10)
        raise NotFoundError("canary", name_or_id, known=conn.scalars(newest))
    return _canary(row)


def live(conn: Connection) -> tuple[Canary, ...]:
    """Canaries that are not over, oldest first."""
    is_live = canaries.c.phase.not_in([phase.value for phase in TERMINAL])
    rows = conn.execute(_selected().where(is_live).order_by(canaries.c.created_at, canaries.c.id))
    return tuple(_canary(row) for row in rows)


def promoted(conn: Connection, *, fleet: str) -> tuple[Canary, ...]:
    """Canaries of the fleet that were promoted, newest first."""
    is_promoted = (fleets.c.name == fleet) & (canaries.c.phase == Phase.PROMOTED.value)
    rows = conn.execute(_selected().where(is_promoted).order_by(canaries.c.id.desc()))
    return tuple(_canary(row) for row in rows)


def num_compared(conn: Connection, *, flag: str, variant: str, hardware: str, stack: str) -> int:
    """How many canaries of the variant there were rolled back after a block of evidence was closed.

    For whatever reason: who looks, gives up and looks again spends the error of another look.
    """
    has_block = select(evidence_blocks.c.canary_id).where(
        evidence_blocks.c.canary_id == canaries.c.id
    )
    counted = (
        select(func.count())
        .select_from(canaries)
        .where(
            canaries.c.flag == flag,
            canaries.c.variant == variant,
            canaries.c.hardware == hardware,
            canaries.c.stack == stack,
            canaries.c.phase == Phase.ROLLED_BACK.value,
            has_block.exists(),
        )
    )
    return conn.scalars(counted).one()


def list_page(
    conn: Connection, *, fleet: str | None, after: str | None, limit: int
) -> tuple[Canary, ...]:
    """Up to `limit` canaries, newest first.

    Args:
        conn: a connection.
        fleet: only those of this fleet; None: of every fleet.
        after: id of the last of the page before; None: the first page.
        limit: at most so many.
    """
    selected = _selected().order_by(canaries.c.id.desc()).limit(limit)
    if fleet is not None:
        selected = selected.where(canaries.c.fleet_id == fleet_store.id_of(conn, fleet))
    if after is not None:
        selected = selected.where(canaries.c.id < after)
    return tuple(_canary(row) for row in conn.execute(selected))


def save(conn: Connection, canary: Canary, *, expected_version: int) -> None:
    """Overwrite the canary that was read at `expected_version`.

    Raises:
        StaleVersionError: it has changed since.
    """
    _update(conn, canary, _row(canary), expected_version=expected_version)


def save_bake(conn: Connection, canary: Canary) -> None:
    """Keep the bake and the lease of `canary`, which are no transition.

    Raises:
        StaleVersionError: it has changed since.
    """
    changed = {
        "bake": canary.bake,
        "baked_until": canary.baked_until,
        "lease_until": canary.lease_until,
    }
    _update(conn, canary, changed, expected_version=canary.version)


def lock(conn: Connection, *, canary_id: str) -> None:
    """Hold the canary's row until the transaction ends."""
    locked = select(canaries.c.id).where(canaries.c.id == canary_id)
    conn.execute(dialect.lock_row(conn, locked))


def expose(
    conn: Connection,
    *,
    canary_id: str,
    worker_id: str,
    incarnation: str,
    flag_bytes: int,
    now: datetime,
) -> None:
    """Record that `incarnation`, which keeps `flag_bytes` so far, is told to run the variant.

    A repeat changes nothing.
    """
    row = {
        "canary_id": canary_id,
        "worker_id": worker_id,
        "incarnation": incarnation,
        "exposed_at": now,
        "flag_bytes_before": flag_bytes,
    }
    dialect.insert_new(conn, canary_workers, [row])


def exposed(conn: Connection, *, canary_id: str) -> tuple[Exposure, ...]:
    """Every exposure of the canary, oldest first."""
    columns = [
        workers.c.name.label("worker") if field.name == "worker" else canary_workers.c[field.name]
        for field in fields(Exposure)
    ]
    rows = conn.execute(
        select(*columns)
        .join_from(canary_workers, workers)
        .where(canary_workers.c.canary_id == canary_id)
        .order_by(canary_workers.c.exposed_at, workers.c.name)
    )
    return tuple(Exposure(**row._asdict()) for row in rows)


def save_marks(conn: Connection, *, canary_id: str, exposure: Exposure) -> None:
    """Keep the marks of `exposure`; one that is set already stays as it is."""
    for column in _MARKS:
        if marked_at := getattr(exposure, column.name):
            _mark(conn, exposure, column, canary_id=canary_id, now=marked_at)


def mark_contained(
    conn: Connection, *, canary_id: str, worker_id: str, incarnation: str, now: datetime
) -> None:
    """No session can start or go on under the variant there."""
    where = _one(canary_id, worker_id, incarnation)
    _set_once(conn, canary_workers.c.contained_at, where=where, now=now)


def mark_verified(
    conn: Connection, *, canary_id: str, worker_id: str, incarnation: str, now: datetime
) -> None:
    """Nothing of the variant is left in memory there."""
    where = _one(canary_id, worker_id, incarnation)
    _set_once(conn, canary_workers.c.verified_at, where=where, now=now)


def mark_quarantined(
    conn: Connection, *, canary_id: str, worker_id: str, incarnation: str, now: datetime
) -> None:
    """It stayed silent, so it is out of service."""
    where = _one(canary_id, worker_id, incarnation)
    _set_once(conn, canary_workers.c.quarantined_at, where=where, now=now)


def _update(
    conn: Connection, canary: Canary, changed: dict[str, Any], *, expected_version: int
) -> None:
    known = (canaries.c.id == canary.id) & (canaries.c.version == expected_version)
    if conn.execute(update(canaries).where(known).values(changed)).rowcount != 1:
        raise StaleVersionError("canary", canary.name, expected_version)


def _selected() -> Select[Any]:
    columns = (canaries.c[name] for name in _DIRECT)
    return select(*columns, fleets.c.name.label("fleet")).join_from(canaries, fleets)


def _row(canary: Canary) -> dict[str, Any]:
    row = {name: getattr(canary, name) for name in _DIRECT}
    told = {"subject": canary.subject.value, "variants": dict(canary.variants) or None}
    return {**row, **told, "phase": canary.phase.value}


def _canary(row: Row[Any]) -> Canary:
    values = row._asdict()
    read = {"phase": Phase(values["phase"]), "variants": values["variants"] or {}}
    return Canary(**{**values, **read})


def _mark(
    conn: Connection, exposure: Exposure, column: Column[Any], *, canary_id: str, now: datetime
) -> None:
    where = _one(canary_id, exposure.worker_id, exposure.incarnation)
    _set_once(conn, column, where=where, now=now)


def _one(canary_id: str, worker_id: str, incarnation: str) -> Any:
    return (
        (canary_workers.c.canary_id == canary_id)
        & (canary_workers.c.worker_id == worker_id)
        & (canary_workers.c.incarnation == incarnation)
    )


def _set_once(conn: Connection, column: Column[Any], *, where: Any, now: datetime) -> None:
    unset = where & column.is_(None)
    conn.execute(update(canary_workers).where(unset).values({column.name: now}))
