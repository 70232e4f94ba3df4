"""The read side of the weekly report: days of counts added up to weeks, by the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select

from controlplane.domain.weeks import DAYS_A_WEEK, EPOCH, Rate, Weeks, number_of
from controlplane.store.evidence_tables import session_days
from controlplane.store.rollups import COUNTS
from controlplane.store.tables import fleets

_GROUP: Final = ("hardware", "stack", "flags", "is_mixed", "is_synthetic", "is_imported")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekRow:
    """Ended sessions of one week, fleet, stratum and set of variants; kinds of sessions apart."""

    starts_on: date
    fleet: str
    is_sample: bool
    hardware: str
    stack: str
    flags: Mapping[str, str]
    is_mixed: bool  # changed variant while they ran
    is_synthetic: bool
    is_imported: bool
    num_sessions: int
    num_rated: int  # streamed long enough, paced by the worker, not failed
    num_slow: int
    num_very_slow: int
    num_failed: int
    num_viewer_limited: int

    @property
    def slow(self) -> Rate:
        """Of the sessions that can be rated."""
        return Rate(number=self.num_slow, total=self.num_rated)

    @property
    def very_slow(self) -> Rate:
        """Of the sessions that can be rated; they are among the slow ones."""
        return Rate(number=self.num_very_slow, total=self.num_rated)

    @property
    def failure(self) -> Rate:
        """Of all sessions, however short: those that died at once never streamed a second."""
        return Rate(number=self.num_failed, total=self.num_sessions)


def rows(
    conn: Connection, *, weeks: Weeks, fleet: str | None, since: date, until: date
) -> tuple[WeekRow, ...]:
    """Counts of the days from `since` to `until`, both included, oldest week first.

    Args:
        conn: a connection.
        weeks: how days make weeks.
        fleet: only this one; None: every fleet.
        since: begin of a week, or that week is counted in part.
        until: end of a week, or likewise.
    """
    found = conn.execute(_selected(weeks, fleet=fleet, since=since, until=until))
    return tuple(_row(row._asdict(), weeks) for row in found)


def newest_day(conn: Connection, *, fleet: str | None) -> date | None:
    """The last day that a session started on, or None where there is none."""
    selected = select(func.max(session_days.c.day))
    if fleet is not None:
        selected = selected.join_from(session_days, fleets).where(fleets.c.name == fleet)
    number = conn.scalars(selected).one()
    return None if number is None else EPOCH + timedelta(days=int(number))


def _selected(weeks: Weeks, *, fleet: str | None, since: date, until: date) -> Select[Any]:
    # One more week keeps the number positive, so that both databases round it the same way.
    week = (session_days.c.day - weeks.phase + DAYS_A_WEEK) // DAYS_A_WEEK
    group = [session_days.c[name] for name in _GROUP]
    selected = (
        select(
            week.label("week"),
            fleets.c.name.label("fleet"),
            fleets.c.is_sample,
            *group,
            *(func.sum(session_days.c[name]).label(name) for name in COUNTS),
        )
        .join_from(session_days, fleets)
        .where(session_days.c.day.between(number_of(since), number_of(until)))
        .group_by("week", fleets.c.name, fleets.c.is_sample, session_days.c.variants, *group)
        .order_by(
            "week",
            fleets.c.name,
            session_days.c.hardware,
            session_days.c.stack,
            session_days.c.variants,
            *(session_days.c[name] for name in _GROUP if name.startswith("is_")),
        )
    )
    return selected if fleet is None else selected.where(fleets.c.name == fleet)


def _row(found: dict[str, Any], weeks: Weeks) -> WeekRow:
    start = EPOCH + timedelta(days=(int(found.pop("week")) - 1) * DAYS_A_WEEK + weeks.phase)
    # PostgreSQL adds bigints up to numeric.
    counts = {name: int(found[name]) for name in COUNTS}
    return WeekRow(**{**found, **counts}, starts_on=start)
