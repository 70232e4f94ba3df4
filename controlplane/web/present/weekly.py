"""The weekly report: slow, very slow and failed sessions, side by side and never added together.

Takes the rows as the report service gives them; a key that an older or newer one lacks is nothing.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controlplane.contract import vocabulary
from controlplane.web.present import plots, words

_COUNTS = ("num_sessions", "num_rated", "num_slow", "num_very_slow", "num_failed")
# Pixels down, percent across: the chart is as wide as its room.
_HEIGHT, _TOP, _BOTTOM = 220, 22, 24
_MAX_BAR = 8.0
_TOPS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75)
# As many labels as a telephone has room for.
_MAX_LABELS = 8
_STACK_DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekBar:
    """One week of the chart: percent across, pixels down."""

    week: str
    x: float
    width: float
    middle: float
    share: str  # slow, in percent
    is_spare: bool  # its words are left out where there is little room
    slow_y: float
    very_slow_y: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekChart:
    """Slow and very slow rates by week."""

    height: int
    base_y: float
    ticks: tuple[tuple[float, str], ...]
    bars: tuple[WeekBar, ...]
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeekRow:
    """One week of one variant."""

    week: str
    kind: str  # the variants, or that they changed on the way
    hardware: str
    stack: str  # the first digits; empty where the fleet has one alone
    num_sessions: int
    num_rated: int
    slow: str
    very_slow: str
    failed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SectionView:
    """One fleet, one kind of sessions."""

    fleet: str
    title: str
    headline: str
    chart: WeekChart | None
    plot: plots.Plot
    rows: tuple[WeekRow, ...]  # newest week first
    mixed: tuple[WeekRow, ...]  # changed variant while they ran


def view(rows: Iterable[Mapping[str, Any]]) -> tuple[SectionView, ...]:
    """The report, a section for each fleet and kind of sessions."""
    groups: dict[tuple[str, bool], list[Mapping[str, Any]]] = {}
    for row in rows:
        key = (str(row.get("fleet", "")), bool(row.get("is_synthetic", False)))
        groups.setdefault(key, []).append(row)
    return tuple(_section(fleet, kind, groups[fleet, kind]) for fleet, kind in sorted(groups))


def _section(fleet: str, is_synthetic: bool, rows: Sequence[Mapping[str, Any]]) -> SectionView:  # noqa: FBT001 - half of the group's key
    rows = _told_apart(rows)
    pure = [row for row in rows if not row.get("is_mixed")]
    weeks = _totals(rows)
    kind = "synthetic probes" if is_synthetic else _kind(rows)
    is_sample = any(row.get("is_sample") for row in rows)
    return SectionView(
        fleet=fleet,
        title=f"{kind}, sample data" if is_sample else kind,
        headline=_headline(weeks),
        chart=_chart(weeks),
        plot=plots.weeks(weeks),
        rows=_table(pure),
        mixed=_table([row for row in rows if row.get("is_mixed")]),
    )


def _told_apart(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The rows, each with what else than its week, variants and hardware it differs from others in.

    Only where there is more than one of it: else it is the same on every row.
    """
    has_stacks = len({row.get("stack") for row in rows}) > 1
    has_kinds = len({bool(row.get("is_imported")) for row in rows}) > 1
    return [
        {
            **row,
            "stack": str(row.get("stack") or "")[:_STACK_DIGITS] if has_stacks else "",
            "is_marked": has_kinds and bool(row.get("is_imported")),
        }
        for row in rows
    ]


def _kind(rows: Sequence[Mapping[str, Any]]) -> str:
    match {bool(row.get("is_imported")) for row in rows}:
        case kinds if len(kinds) > 1:
            return "live and imported sessions"
        case kinds:
            return "imported sessions" if True in kinds else "live sessions"


def _totals(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    weeks: dict[str, dict[str, int]] = {}
    for row in rows:
        total = weeks.setdefault(str(row.get("week", "")), dict.fromkeys(_COUNTS, 0))
        for name in _COUNTS:
            total[name] += int(row.get(name) or 0)
    return dict(sorted(weeks.items()))


def _headline(weeks: Mapping[str, Mapping[str, int]]) -> str:
    week, last = list(weeks.items())[-1]
    said = (
        f"{week}: {words.percent(last['num_slow'], last['num_rated'])} slow,"
        f" {words.percent(last['num_very_slow'], last['num_rated'])} very slow"
        f" of {words.count(last['num_rated'], 'rated session')};"
        f" {words.percent(last['num_failed'], last['num_sessions'])}"
        f" of {words.count(last['num_sessions'], 'session')} failed"
    )
    if len(weeks) == 1:
        return said
    before = list(weeks.values())[-2]
    return f"{said}. Week before: {words.percent(before['num_slow'], before['num_rated'])} slow"


def _table(rows: Sequence[Mapping[str, Any]]) -> tuple[WeekRow, ...]:
    telling = vocabulary.telling([row.get("flags") or {} for row in rows])
    ordered = sorted(rows, key=lambda row: _ran(row, telling))
    ordered.sort(key=lambda row: str(row.get("week", "")), reverse=True)
    return tuple(_row(row, telling) for row in ordered)


def _ran(row: Mapping[str, Any], telling: Container[str]) -> str:
    flags = row.get("flags") or {}
    return words.flags({flag: variant for flag, variant in flags.items() if flag in telling})


def _row(row: Mapping[str, Any], telling: Container[str]) -> WeekRow:
    counts = {name: int(row.get(name) or 0) for name in _COUNTS}
    return WeekRow(
        week=str(row.get("week", "")),
        kind=_ran(row, telling) + (" (imported)" if row["is_marked"] else ""),
        hardware=str(row.get("hardware", words.NOTHING)),
        stack=row["stack"],
        num_sessions=counts["num_sessions"],
        num_rated=counts["num_rated"],
        slow=_rate(row, "slow", counts["num_slow"], counts["num_rated"]),
        very_slow=_rate(row, "very_slow", counts["num_very_slow"], counts["num_rated"]),
        failed=_rate(row, "failure", counts["num_failed"], counts["num_sessions"]),
    )


def _rate(row: Mapping[str, Any], name: str, part: int, of: int) -> str:
    """The rate, and between what the true one may be."""
    interval = row.get(f"{name}_interval")
    said = words.percent(part, of)
    if not of or not interval:
        return said
    low, high = interval
    return f"{said} ({100 * low:.1f} to {100 * high:.1f})"


def _chart(weeks: Mapping[str, Mapping[str, int]]) -> WeekChart | None:
    rates = {
        week: (one["num_slow"] / one["num_rated"], one["num_very_slow"] / one["num_rated"])
        for week, one in weeks.items()
        if one["num_rated"]
    }
    if not rates:
        return None
    top = _top(max(slow for slow, _ in rates.values()))
    base = _HEIGHT - _BOTTOM
    room = 100 / len(rates)
    width = min(room * 0.7, _MAX_BAR)
    each = -(-len(rates) // _MAX_LABELS)

    def y(rate: float) -> float:
        return round(base - rate / top * (base - _TOP), 1)

    def bar(index: int, week: str, slow: float, very: float) -> WeekBar:
        middle = room * (index + 0.5)
        return WeekBar(
            week=week,
            x=round(middle - width / 2, 2),
            width=round(width, 2),
            middle=round(middle, 2),
            slow_y=y(slow),
            very_slow_y=y(very),
            share=f"{100 * slow:.1f}",
            is_spare=bool((len(rates) - 1 - index) % each),  # the newest always has its words
            title=f"{week}: {100 * slow:.1f} % slow, {100 * very:.1f} % very slow",
        )

    return WeekChart(
        height=_HEIGHT,
        base_y=base,
        ticks=tuple((y(top * part), f"{100 * top * part:g} %") for part in (0.0, 0.5, 1.0)),
        bars=tuple(
            bar(index, week, slow, very) for index, (week, (slow, very)) in enumerate(rates.items())
        ),
        summary="; ".join(f"{week} {100 * slow:.1f} % slow" for week, (slow, _) in rates.items()),
    )


def _top(rate: float) -> float:
    """The end of the scale: a round number at or above the highest rate."""
    return next((top for top in _TOPS if top >= rate), 1.0)
