"""The read side for pages and the command line: frozen rows, counted by the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, func, select

from controlplane.domain.canary import TERMINAL
from controlplane.domain.fleet import Mode
from controlplane.store.evidence_tables import breaker_trips, live_sessions, session_rollups
from controlplane.store.rollups import COUNTS
from controlplane.store.tables import canaries, fleets, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """A fleet at a glance."""

    name: str
    mode: Mode
    stopped_reason: str | None
    promoted: Mapping[str, str]
    num_workers: int
    num_out_of_service: int  # cordoned or quarantined
    num_tripped: int
    num_open_sessions: int
    num_live_canaries: int
    oldest_seen_at: datetime | None  # of the worker that has been silent for longest


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekRow:
    """Closed sessions of one week and one set of variants; synthetic ones stand apart."""

    week: str
    fleet: str
    hardware: str
    stack: str
    flags: Mapping[str, str]
    is_mixed: bool  # changed variant while they ran
    is_synthetic: bool
    num_sessions: int
    num_rated: int  # streamed long enough, paced by the worker, not failed
    num_slow: int
    num_very_slow: int
    num_failed: int
    num_viewer_limited: int

    @property
    def slow_rate(self) -> float | None:
        """Slow ones among the rated, or None where none is."""
        return self.num_slow / self.num_rated if self.num_rated else None

    @property
    def failure_rate(self) -> float | None:
        """Failed or lost ones among all, or None where there are none."""
        return self.num_failed / self.num_sessions if self.num_sessions else None


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


def weekly(
    conn: Connection,
    *,
    fleet: str | None,
    from_week: str,
    to_week: str,
    is_synthetic: bool | None = False,
) -> tuple[WeekRow, ...]:
    """Counts of closed sessions, oldest week first; both weeks are included.

    Args:
        conn: a connection.
        fleet: only this one; None: every fleet.
        from_week: as `sessions.week_of` writes it.
        to_week: the same.
        is_synthetic: sessions of that kind only; None: both.
    """
    columns = ("week", "hardware", "stack", "flags", "is_mixed", "is_synthetic", *COUNTS)
    selected = (
        select(*(session_rollups.c[name] for name in columns), fleets.c.name.label("fleet"))
        .join_from(session_rollups, fleets)
        .where(session_rollups.c.week.between(from_week, to_week))
        .order_by(
            session_rollups.c.week,
            fleets.c.name,
            session_rollups.c.hardware,
            session_rollups.c.stack,
            session_rollups.c.variants,
            session_rollups.c.is_mixed,
            session_rollups.c.is_synthetic,
        )
    )
    if fleet is not None:
        selected = selected.where(fleets.c.name == fleet)
    if is_synthetic is not None:
        selected = selected.where(session_rollups.c.is_synthetic.is_(is_synthetic))
    return tuple(WeekRow(**row._asdict()) for row in conn.execute(selected))


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
