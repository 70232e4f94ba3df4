"""Lists of what happened: weeks, ended sessions, and who did what."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.services import weekly as weekly_report
from controlplane.store import audit as audit_store
from controlplane.store import session_pages
from controlplane.store.audit import AuditRow
from controlplane.store.transaction import Connection


def weekly(conn: Connection, *, fleet: str | None, now: datetime) -> Sequence[Mapping[str, Any]]:
    """Rows of the weekly report by ISO week, for the half year up to the newest session.

    Raises:
        NotFoundError: no fleet of that name.
    """
    return weekly_report.weekly(conn, weekly_report.Asked(fleet=fleet), now=now).rows


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
