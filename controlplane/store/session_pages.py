"""Closed sessions as lists show them, page after page along the primary key."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select, tuple_

from controlplane.contract import vocabulary
from controlplane.store import fleets as fleet_store
from controlplane.store.evidence_tables import sessions
from controlplane.store.tables import fleets, workers

_SHOWN = (
    "week",
    "id",
    "incarnation",
    "hardware",
    "stack",
    "canary",
    "arm",
    "flags",
    "is_synthetic",
    "is_mixed",
    "started_at",
    "ended_at",
    "outcome",
    "reason",
    "detail",
    "num_frames",
    "num_first_chunk_frames",
    "streamed_s",
    "viewer_wait_s",
    "num_late_chunks",
    "longest_stall_ms",
    "first_forward_length",
)


def page(
    conn: Connection, *, fleet: str | None, after: tuple[str, str] | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    """Up to `limit` closed sessions, newest week first, by id within it.

    Args:
        conn: a connection.
        fleet: only of this fleet; None: of every fleet.
        after: week and id of the last of the page before; None: the first page.
        limit: at most so many.

    Raises:
        NotFoundError: no fleet of that name.
    """
    selected = (
        select(
            *(sessions.c[name] for name in _SHOWN),
            workers.c.name.label("worker"),
            fleets.c.name.label("fleet"),
        )
        .join_from(sessions, workers, sessions.c.worker_id == workers.c.id)
        .join(fleets, sessions.c.fleet_id == fleets.c.id)
        .order_by(sessions.c.week.desc(), sessions.c.id.desc())
        .limit(limit)
    )
    if fleet is not None:
        selected = selected.where(sessions.c.fleet_id == fleet_store.id_of(conn, fleet))
    if after is not None:
        selected = selected.where(tuple_(sessions.c.week, sessions.c.id) < tuple_(*after))
    return tuple(_shown(row._asdict()) for row in conn.execute(selected))


def _shown(row: dict[str, Any]) -> Mapping[str, Any]:
    fps = vocabulary.session_fps(
        num_frames=row["num_frames"],
        num_first_chunk_frames=row["num_first_chunk_frames"],
        streamed_s=row["streamed_s"],
    )
    return {**row, "fps": fps}
