"""What the charts show to whom looks closer: series of points, each with the words said about it.

static/explore.js draws them with plotly, which reads some markup in words; so words come escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape

from controlplane.contract import vocabulary
from controlplane.domain.canary import Event
from controlplane.store.history import Transition
from controlplane.store.session_views import SessionView
from controlplane.web.present import charts, words

# What changes who is served what, or how it is judged.
_MARKED = {
    Event.PREFLIGHT_PASSED: "first step",
    Event.STEP_PASSED: "next step",
    Event.LAST_STEP_PASSED: "bake",
    Event.BAKE_PASSED: "promoted",
    Event.GATE_FAILED: "sent back",
    Event.HARD_STOPPED: "sent back",
    Event.ABORT_REQUESTED: "ended by hand",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a series."""

    x: str  # a moment in UTC, or the name of a week
    y: float
    says: str  # escaped
    is_slow: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points that belong together."""

    role: str  # slow, very, failed, canary or control: its mark and colour
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment that changed what the points after it are."""

    x: str
    says: str  # escaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One chart."""

    is_of_weeks: bool  # else of moments
    y_format: str  # of the scale, as d3 writes it
    floor: float | None
    series: tuple[Series, ...]
    marks: tuple[Mark, ...]


def sessions(shown: Sequence[SessionView], transitions: Sequence[Transition]) -> Plot | None:
    """Rates of sessions over time, the canary's and those beside it; None if there are none."""
    rated = charts.rated_of(shown)
    if not rated:
        return None
    canary = [one for one in rated if one.arm == vocabulary.ARM_CANARY]
    beside = [one for one in rated if one.arm != vocabulary.ARM_CANARY]
    return Plot(
        is_of_weeks=False,
        y_format=".1f",
        floor=charts.FLOOR,
        series=(
            Series(role="control", points=tuple(_session(one, "beside it") for one in beside)),
            Series(role="canary", points=tuple(_session(one, "canary") for one in canary)),
        ),
        marks=tuple(
            Mark(x=_moment(one.at), says=_MARKED[one.event])
            for one in reversed(transitions)
            if one.event in _MARKED
        ),
    )


def weeks(counts: Mapping[str, Mapping[str, int]]) -> Plot:
    """Slow, very slow and failed sessions by week; never added together."""
    return Plot(
        is_of_weeks=True,
        y_format=".1~%",
        floor=None,
        series=tuple(
            Series(role=role, points=_weeks(counts, role, part=part, of=of))
            for role, part, of in (
                ("slow", "num_slow", "num_rated"),
                ("very", "num_very_slow", "num_rated"),
                ("failed", "num_failed", "num_sessions"),
            )
        ),
        marks=(),
    )


def _session(one: SessionView, arm: str) -> Point:
    assert one.fps is not None, "only rated sessions are drawn"
    is_slow = vocabulary.is_slow(one.fps)
    lines = (
        f"{words.fps(one.fps)} fps, {arm}{', slow' if is_slow else ''}",
        f"{one.worker}, {words.flags(one.flags)}",
        f"first-forward length {one.first_forward_length}, {one.streamed_s:.1f} s streamed",
        f"started {words.at(one.started_at)}",
    )
    return Point(x=_moment(one.started_at), y=one.fps, says=_said(lines), is_slow=is_slow)


def _weeks(
    counts: Mapping[str, Mapping[str, int]], role: str, *, part: str, of: str
) -> tuple[Point, ...]:
    name = {"slow": "slow", "very": "very slow", "failed": "failed"}[role]
    noun = "rated sessions" if of == "num_rated" else "sessions that started"
    return tuple(
        Point(
            x=week,
            y=one[part] / one[of],
            says=_said(
                (f"{week}: {words.percent(one[part], one[of])} {name}",
                 f"{one[part]:,} of {one[of]:,} {noun}")
            ),
        )
        for week, one in counts.items()
        if one[of]
    )  # fmt: skip


def _said(lines: Sequence[str]) -> str:
    return "<br>".join(escape(words.visible(line), quote=False) for line in lines)


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S.%f}"
