"""The read side for pages and the command line: frozen rows, counted by the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, func, select

from controlplane.domain.canary import TERMINAL
from controlplane.domain.fleet import Mode
from controlplane.store.evidence_tables import breaker_trips, live_sessions
from controlplane.store.tables import canaries, fleets, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """A fleet at a glance."""

    name: str
    is_sample: bool  # made-up sessions to look at: no workers, nothing is ever flipped
    mode: Mode
    stopped_reason: str | None
    promoted: Mapping[str, str]
    num_workers: int
    num_out_of_service: int  # cordoned or quarantined
    num_tripped: int
    num_open_sessions: int
    num_live_canaries: int
    oldest_seen_at: datetime | None  # of the worker that has been silent for longest


def fleet_rows(conn: Connection) -> tuple[FleetRow, ...]:
    """Every fleet, by name."""
    of_workers = _by_fleet(
        conn,
        select(
            workers.c.fleet_id,
            func.count().label("num_workers"),
            func.sum(case((workers.c.is_cordoned | workers.c.is_quarantined, 1), else_=0)).label(
                "num_out_of_service"
            ),
            func.min(workers.c.last_seen_at).label("oldest_seen_at"),
        ).group_by(workers.c.fleet_id),
    )
    num_tripped = _by_fleet(conn, _tripped())
    num_open = _by_fleet(conn, _open_sessions())
    num_canaries = _by_fleet(conn, _live_canaries())
    none: dict[str, Any] = {}
    return tuple(
        FleetRow(
            name=row.name,
            is_sample=row.is_sample,
            mode=Mode(row.mode),
            stopped_reason=row.stopped_reason,
            promoted=row.promoted,
            num_workers=of_workers.get(row.id, none).get("num_workers", 0),
            num_out_of_service=of_workers.get(row.id, none).get("num_out_of_service", 0),
            oldest_seen_at=of_workers.get(row.id, none).get("oldest_seen_at"),
            num_tripped=num_tripped.get(row.id, none).get("num", 0),
            num_open_sessions=num_open.get(row.id, none).get("num", 0),
            num_live_canaries=num_canaries.get(row.id, none).get("num", 0),
        )
        for row in conn.execute(select(fleets).order_by(fleets.c.name))
    )


def _by_fleet(conn: Connection, selected: Any) -> dict[str, dict[str, Any]]:
    return {row.fleet_id: row._asdict() for row in conn.execute(selected)}


def _tripped() -> Any:
    return (
        select(workers.c.fleet_id, func.count(breaker_trips.c.worker_id.distinct()).label("num"))
        .join_from(breaker_trips, workers, breaker_trips.c.worker_id == workers.c.id)
        .where(breaker_trips.c.closed_at.is_(None))
        .group_by(workers.c.fleet_id)
    )


def _open_sessions() -> Any:
    return (
        select(live_sessions.c.fleet_id, func.count().label("num"))
        .where(live_sessions.c.outcome.is_(None))
        .group_by(live_sessions.c.fleet_id)
    )


def _live_canaries() -> Any:
    return (
        select(canaries.c.fleet_id, func.count().label("num"))
        .where(canaries.c.phase.not_in([phase.value for phase in TERMINAL]))
        .group_by(canaries.c.fleet_id)
    )
