"""How fleets did, and who did what."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from controlplane.store import audit as audit_store
from controlplane.store import fleets as fleet_store
from controlplane.store import queries, session_pages
from controlplane.store import sessions as session_store
from controlplane.store.audit import AuditRow
from controlplane.store.queries import WeekRow
from controlplane.store.transaction import Connection

# Half a year: the seven weeks of the source, and room to look back.
WEEKS_BACK = 26


def weekly(
    conn: Connection, *, fleet: str | None, now: datetime
) -> tuple[Mapping[str, object], ...]:
    """Slow and failed sessions by week and variants, side by side and never added together.

    Raises:
        NotFoundError: no fleet of that name.
    """
    if fleet is not None:
        fleet_store.get(conn, fleet)
    rows = queries.weekly(
        conn,
        fleet=fleet,
        from_week=session_store.week_of(now - timedelta(weeks=WEEKS_BACK)),
        to_week=session_store.week_of(now),
        is_synthetic=None,
    )
    return tuple(_shown(row) for row in rows)


def sessions(
    conn: Connection, *, fleet: str | None, after: tuple[str, str] | None, limit: int
) -> tuple[Mapping[str, Any], ...]:
    """Closed sessions, newest week first, after the one of that week and id.

    Raises:
        NotFoundError: no fleet of that name.
    """
    return session_pages.page(conn, fleet=fleet, after=after, limit=limit)


def audit(conn: Connection, *, after: int | None, limit: int) -> tuple[AuditRow, ...]:
    """Acts, newest first, below the sequence `after`."""
    return audit_store.page(conn, after=after, limit=limit)


def _shown(row: WeekRow) -> Mapping[str, object]:
    return {**asdict(row), "slow_rate": row.slow_rate, "failure_rate": row.failure_rate}
