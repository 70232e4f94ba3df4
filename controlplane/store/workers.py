"""Workers: what is known of each, read as one value from the tables that touch it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, update

from controlplane.contract.messages import BreakerTrip, EffectiveReport, Registration
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.fleet import Pin, Trip, Worker
from controlplane.store import dialect
from controlplane.store import fleets as fleet_store
from controlplane.store import incarnations as incarnation_store
from controlplane.store import pins as pin_store
from controlplane.store import trips as trip_store
from controlplane.store.evidence_tables import live_sessions
from controlplane.store.tables import desired_states, fleets, incarnations, workers

_DIRECT = (
    "id",
    "name",
    "hardware",
    "stack",
    "incarnation",
    "incarnation_since",
    "address",
    "effective_generation",
    "effective_flags",
    "effective_at",
    "flag_bytes",
    "flag_bytes_at",
    "last_seen_at",
    "last_record_at",
    "is_cordoned",
    "is_quarantined",
    "is_break_glass",
    "is_lease_lapsed",
)


def get(conn: Connection, *, fleet: str, name: str) -> Worker:
    """The worker of that name in the fleet.

    Raises:
        NotFoundError: there is no such fleet, or no such worker in it; tells which there are.
    """
    fleet_id = fleet_store.id_of(conn, fleet)
    found = _read(conn, (workers.c.fleet_id == fleet_id) & (workers.c.name == name))
    if not found:
        names = select(workers.c.name).where(workers.c.fleet_id == fleet_id)
        known = conn.scalars(names.order_by(workers.c.name).limit(20))
        raise NotFoundError("worker", name, known=known)
    return found[0]


def by_id(conn: Connection, worker_id: str) -> Worker:
    """The worker with that id. Raises: NotFoundError."""
    found = _read(conn, workers.c.id == worker_id)
    if not found:
        raise NotFoundError("worker", worker_id)
    return found[0]


def in_fleet(conn: Connection, *, fleet: str) -> tuple[Worker, ...]:
    """The workers of the fleet, by name; none if there is no such fleet."""
    return _read(conn, fleets.c.name == fleet)


def register(
    conn: Connection, *, registration: Registration, worker_id: str, now: datetime
) -> Worker:
    """Record that an incarnation of a worker lives. Raises as `incarnations.begin` does.

    Args:
        conn: a connection.
        registration: as received.
        worker_id: id for the worker if it is not known yet.
        now: receipt.
    """
    known = incarnation_store.begin(conn, registration=registration, worker_id=worker_id, now=now)
    return by_id(conn, known)


def record_effective(
    conn: Connection, *, worker_id: str, report: EffectiveReport, now: datetime
) -> bool:
    """Record what all ranks run; False for a late report. See `incarnations.record_effective`."""
    return incarnation_store.record_effective(conn, worker_id=worker_id, report=report, now=now)


def touch(conn: Connection, *, worker_id: str, now: datetime) -> None:
    """Record that the worker has been heard of."""
    _change(conn, worker_id, last_seen_at=now)


def note_generation(conn: Connection, *, worker_id: str, generation: int) -> None:
    """Remember that the worker has seen `generation`. Raises: InvalidValueError."""
    incarnation_store.check_generation(generation)
    is_news = (workers.c.id == worker_id) & (workers.c.reported_generation < generation)
    conn.execute(update(workers).where(is_news).values(reported_generation=generation))


def has_incarnation(conn: Connection, *, worker_id: str, incarnation: str) -> bool:
    """Whether that is one of the worker's lives, present or past."""
    life = (incarnations.c.id == incarnation) & (incarnations.c.worker_id == worker_id)
    return conn.execute(select(incarnations.c.id).where(life)).first() is not None


def set_cordoned(conn: Connection, *, worker_id: str, is_cordoned: bool) -> None:
    """Take the worker out of service, or back. Raises: NotFoundError."""
    _change(conn, worker_id, is_cordoned=is_cordoned)


def set_quarantined(conn: Connection, *, worker_id: str, is_quarantined: bool) -> None:
    """Take the worker out of fleet and controls, or back. Raises: NotFoundError."""
    _change(conn, worker_id, is_quarantined=is_quarantined)


def put_pin(conn: Connection, *, worker_id: str, pin: Pin, now: datetime) -> None:
    """Pin a flag of the worker; a pin of the same flag is replaced."""
    pin_store.put(conn, worker_id=worker_id, pin=pin, now=now)


def remove_pin(conn: Connection, *, worker_id: str, flag: str) -> bool:
    """Unpin a flag of the worker. Returns whether it was pinned."""
    return pin_store.remove(conn, worker_id=worker_id, flag=flag)


def record_trip(conn: Connection, *, worker_id: str, trip: BreakerTrip, now: datetime) -> bool:
    """Record that the worker's own breaker opened. Returns False if that trip is known.

    Raises:
        ConflictError: the incarnation is not one of this worker.
    """
    # Holds the worker's row too, so that the same trip sent twice at a time is one.
    touch(conn, worker_id=worker_id, now=now)
    incarnation = incarnations.c.id == trip.incarnation
    mine = select(incarnations.c.id).where(incarnation, incarnations.c.worker_id == worker_id)
    if conn.execute(mine).first() is None:
        raise ConflictError(
            f"incarnation {trip.incarnation} has not been registered: register first"
        )
    return trip_store.insert(conn, worker_id=worker_id, trip=trip, now=now)


def close_trip(conn: Connection, *, worker_id: str, reason: str, now: datetime) -> bool:
    """Close the worker's breaker. Returns whether it was open."""
    return trip_store.close_all(conn, worker_id=worker_id, reason=reason, now=now) > 0


def lock(conn: Connection, *, worker_id: str) -> None:
    """Hold the worker's row until the transaction ends."""
    conn.execute(dialect.lock_row(conn, select(workers.c.id).where(workers.c.id == worker_id)))


def _change(conn: Connection, worker_id: str, **changed: object) -> None:
    known = workers.c.id == worker_id
    if conn.execute(update(workers).where(known).values(changed)).rowcount != 1:
        raise NotFoundError("worker", worker_id)


def _read(conn: Connection, where: ColumnElement[bool]) -> tuple[Worker, ...]:
    rows = conn.execute(_selected().where(where).order_by(fleets.c.name, workers.c.name)).all()
    ids = [row.id for row in rows]
    pins = pin_store.of_workers(conn, ids)
    trips = trip_store.open_of(conn, ids)
    num_open = _num_open_sessions(conn, ids)
    return tuple(
        _worker(
            row,
            num_open=num_open.get(row.id, 0),
            trip=trips.get(row.id),
            pins=pins.get(row.id, ()),
        )
        for row in rows
    )


def _selected() -> Select[Any]:
    return (
        select(
            *(workers.c[name] for name in _DIRECT),
            fleets.c.name.label("fleet"),
            func.coalesce(desired_states.c.generation, 0).label("desired_generation"),
            desired_states.c.flags.label("desired_flags"),
            workers.c.capabilities,
        )
        .join_from(workers, fleets)
        .outerjoin(desired_states)
    )


def _num_open_sessions(conn: Connection, worker_ids: Sequence[str]) -> dict[str, int]:
    rows = conn.execute(
        select(live_sessions.c.worker_id, func.count().label("num_open"))
        .where(live_sessions.c.worker_id.in_(worker_ids), live_sessions.c.outcome.is_(None))
        .group_by(live_sessions.c.worker_id)
    )
    return {row.worker_id: row.num_open for row in rows}


def _worker(row: Row[Any], *, num_open: int, trip: Trip | None, pins: tuple[Pin, ...]) -> Worker:
    told = {
        **row._asdict(),
        "capabilities": {flag: tuple(known) for flag, known in row.capabilities.items()},
        "desired_flags": row.desired_flags or {},
        "num_open_sessions": num_open,
        "trip": trip,
        "pins": pins,
    }
    return Worker(**told)
