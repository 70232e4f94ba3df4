"""What each worker is wanted to run: the latest only; `history.flips` tells what it was."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, select

from controlplane.contract.messages import DesiredState, Experiment, FlagReason, Probe
from controlplane.domain.errors import NotFoundError, StaleVersionError
from controlplane.store import dialect
from controlplane.store.tables import desired_states, fleets, workers

# Beyond any number of flips, and far enough from the end of bigint that adding one is safe.
MAX_GENERATION: Final = 2**62


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """A desired state without its lease, and the canary it leans on."""

    desired: DesiredState
    canary_id: str | None
    updated_at: datetime


def get(conn: Connection, *, worker_id: str) -> StoredState | None:
    """What the worker is wanted to run, or None if nothing has been decided yet."""
    row = conn.execute(_selected().where(workers.c.id == worker_id)).first()
    return None if row is None else _stored(row)


def in_fleet(conn: Connection, *, fleet: str) -> Mapping[str, StoredState]:
    """The desired states of a fleet's workers, by worker id."""
    rows = conn.execute(_selected().where(fleets.c.name == fleet))
    return {row.worker_id: _stored(row) for row in rows}


def generations(conn: Connection) -> Mapping[str, int]:
    """The generation of every desired state, by worker id."""
    rows = conn.execute(select(desired_states.c.worker_id, desired_states.c.generation))
    return {row.worker_id: row.generation for row in rows}


def overtaken(conn: Connection, *, fleet: str, worker_id: str | None = None) -> frozenset[str]:
    """Ids of the workers of `fleet`, or of the one, that have seen a newer generation than stored.

    They refuse what is stored as old: the database was restored, or a worker says what is not so.
    """
    found = (
        select(workers.c.id)
        .join_from(workers, desired_states)
        .join(fleets, fleets.c.id == workers.c.fleet_id)
        .where(fleets.c.name == fleet)
        .where(workers.c.reported_generation > desired_states.c.generation)
    )
    if worker_id is not None:
        found = found.where(workers.c.id == worker_id)
    return frozenset(conn.scalars(found))


def next_generation(conn: Connection, *, worker_id: str) -> int:
    """The number for the worker's next desired state; holds the worker until the transaction ends.

    Above the stored one and all that the worker has reported, so that a restored database never
    issues a number that the worker refuses as old.

    Raises:
        NotFoundError: there is no such worker.
    """
    reported = select(workers.c.reported_generation).where(workers.c.id == worker_id)
    highest: int | None = conn.scalars(dialect.lock_row(conn, reported)).first()
    if highest is None:
        raise NotFoundError("worker", worker_id)
    stored = select(desired_states.c.generation).where(desired_states.c.worker_id == worker_id)
    newest: int = conn.scalars(stored).first() or 0
    return max(highest, newest) + 1


def put(
    conn: Connection, *, worker_id: str, desired: DesiredState, canary_id: str | None, now: datetime
) -> None:
    """Want `desired` of the worker.

    Raises:
        StaleVersionError: a state of this generation or a newer one is stored.
    """
    newer = desired_states.c.generation < desired.generation
    row = {"worker_id": worker_id, "canary_id": canary_id, "updated_at": now, **_row(desired)}
    if dialect.upsert(conn, desired_states, row, where=newer) != 1:
        raise StaleVersionError("desired state of worker", desired.worker, desired.generation)


def _selected() -> Select[Any]:
    return (
        select(desired_states, workers.c.name.label("worker"), fleets.c.name.label("fleet"))
        .join_from(desired_states, workers)
        .join(fleets)
    )


def _row(desired: DesiredState) -> dict[str, object]:
    return {
        "generation": desired.generation,
        "flags": dict(desired.flags),
        "experiment": desired.experiment and desired.experiment.model_dump(mode="json"),
        "probe": desired.probe and desired.probe.model_dump(mode="json"),
        "is_admitting": desired.is_admitting,
        "is_draining": desired.is_draining,
        "reasons": [reason.model_dump(mode="json") for reason in desired.reasons],
    }


def _stored(row: Row[Any]) -> StoredState:
    desired = DesiredState(
        fleet=row.fleet,
        worker=row.worker,
        generation=row.generation,
        flags=row.flags,
        experiment=row.experiment and Experiment.model_validate(row.experiment),
        probe=row.probe and Probe.model_validate(row.probe),
        is_admitting=row.is_admitting,
        is_draining=row.is_draining,
        reasons=[FlagReason.model_validate(reason) for reason in row.reasons],
    )
    return StoredState(desired=desired, canary_id=row.canary_id, updated_at=row.updated_at)
