"""The weekly report: how many sessions were slow and how many failed, side by side, never added."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from controlplane.domain.errors import InvalidValueError
from controlplane.domain.weeks import DAYS_A_WEEK, FIRST_DAY, LAST_DAY, Rate, Weeks
from controlplane.store import fleets as fleet_store
from controlplane.store import weekly as weekly_store
from controlplane.store.rollups import COUNTS
from controlplane.store.transaction import Connection
from controlplane.store.weekly import WeekRow

# Half a year: the seven weeks of the source, and room to look back.
WEEKS_BACK: Final = 26
MOST_WEEKS: Final = 530  # ten years
# A spreadsheet takes what begins with one of these for a formula and may run it.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a report is wanted of; absent dates mean the half year up to the newest session."""

    fleet: str | None = None
    anchor: date | None = None
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Whole weeks, oldest first."""

    anchor: date | None
    since: date  # the first day of the first week
    until: date  # the last day of the last week, included
    rows: Sequence[Mapping[str, Any]]  # by week, fleet, hardware, stack, variants and kind
    totals: Sequence[Mapping[str, Any]]  # by week and fleet; without synthetic sessions


def weekly(conn: Connection, asked: Asked, *, now: datetime) -> Report:
    """The weeks that the asked days are in, each whole.

    Raises:
        NotFoundError: no fleet of that name.
        InvalidValueError: the dates are in the wrong order, or too far apart.
    """
    if asked.fleet is not None:
        fleet_store.get(conn, asked.fleet)
    weeks = Weeks(anchor=asked.anchor)
    # Old sessions are worth a look: the report of a fleet that is idle, or a sample, is not empty.
    newest = weekly_store.newest_day(conn, fleet=asked.fleet) or now.astimezone(UTC).date()
    since, until = period(asked, newest=newest)
    found = weekly_store.rows(conn, weeks=weeks, fleet=asked.fleet, since=since, until=until)
    return Report(
        anchor=asked.anchor,
        since=since,
        until=until,
        rows=tuple(_shown(row, weeks) for row in found),
        totals=tuple(_total_shown(row, weeks) for row in _totals(found)),
    )


def period(asked: Asked, *, newest: date) -> tuple[date, date]:
    """The first and the last day of the weeks that are asked for.

    Args:
        asked: what is asked for.
        newest: the last day that a session started on.

    Raises:
        InvalidValueError: the dates are in the wrong order, or too far apart.
    """
    weeks = Weeks(anchor=asked.anchor)
    until = asked.until or min(max(newest, asked.since or newest), LAST_DAY)
    last = weeks.start_of(until)
    first = weeks.start_of(asked.since or max(FIRST_DAY, last - timedelta(weeks=WEEKS_BACK - 1)))
    if first > last:
        raise InvalidValueError("from", asked.since, allowed=f"a date up to {until}")
    if last - first >= timedelta(weeks=MOST_WEEKS):
        allowed = f"a date at most {MOST_WEEKS} weeks before {until}"
        raise InvalidValueError("from", asked.since, allowed=allowed)
    return first, last + timedelta(days=DAYS_A_WEEK - 1)


def as_csv(report: Report) -> str:
    """The rows of `report` as a table that a spreadsheet opens and runs nothing of."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")  # RFC 4180
    writer.writerow(_CSV_COLUMNS)
    for row in report.rows:
        writer.writerow([_csv_cell(value) for value in _csv_values(row)])
    return text.getvalue()


def _totals(rows: Iterable[WeekRow]) -> list[WeekRow]:
    """What viewers had in a week of a fleet, whatever it ran; the soak's own viewers apart."""
    totals: dict[tuple[date, str], WeekRow] = {}
    for row in rows:
        if not row.is_synthetic:
            key = (row.starts_on, row.fleet)
            totals[key] = _added(totals[key], row) if key in totals else row
    return list(totals.values())


def _added(one: WeekRow, other: WeekRow) -> WeekRow:
    return replace(
        one,
        num_sessions=one.num_sessions + other.num_sessions,
        num_rated=one.num_rated + other.num_rated,
        num_slow=one.num_slow + other.num_slow,
        num_very_slow=one.num_very_slow + other.num_very_slow,
        num_failed=one.num_failed + other.num_failed,
        num_viewer_limited=one.num_viewer_limited + other.num_viewer_limited,
    )


def _total_shown(row: WeekRow, weeks: Weeks) -> Mapping[str, Any]:
    shown = _shown(row, weeks)
    return {name: value for name, value in shown.items() if name not in _OF_GROUP}


_OF_GROUP: Final = frozenset(
    {"hardware", "stack", "flags", "is_mixed", "is_synthetic", "is_imported"}
)


def _shown(row: WeekRow, weeks: Weeks) -> Mapping[str, Any]:
    return {
        "week": weeks.label(row.starts_on),
        "starts_on": row.starts_on,
        "ends_on": row.starts_on + timedelta(days=DAYS_A_WEEK - 1),
        "fleet": row.fleet,
        "is_sample": row.is_sample,
        "hardware": row.hardware,
        "stack": row.stack,
        "flags": row.flags,
        "is_mixed": row.is_mixed,
        "is_synthetic": row.is_synthetic,
        "is_imported": row.is_imported,
        **{name: getattr(row, name) for name in COUNTS},
        **_rate("slow", row.slow),
        **_rate("very_slow", row.very_slow),
        **_rate("failure", row.failure),
    }


def _rate(name: str, rate: Rate) -> Mapping[str, Any]:
    return {f"{name}_rate": rate.share, f"{name}_interval": rate.interval}


_RATES: Final = ("slow", "very_slow", "failure")
_CSV_COLUMNS: Final = (
    *("week", "starts_on", "ends_on", "fleet", "is_sample", "hardware", "stack", "flags"),
    *("is_mixed", "is_synthetic", "is_imported"),
    *COUNTS,
    *(f"{name}_{part}" for name in _RATES for part in ("rate", "rate_low", "rate_high")),
)


def _csv_values(row: Mapping[str, Any]) -> Iterable[object]:
    for name in _CSV_COLUMNS:
        if name == "flags":
            yield ";".join(f"{flag}={row['flags'][flag]}" for flag in sorted(row["flags"]))
        elif name.endswith(("_low", "_high")):
            interval = row[f"{name.rpartition('_rate_')[0]}_interval"]
            yield None if interval is None else interval[name.endswith("_high")]
        else:
            yield row[name]


def _csv_cell(value: object) -> object:
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:.6f}"
        case str() if value.startswith(_FORMULA):
            return f"'{value}"
        case _:
            return value
