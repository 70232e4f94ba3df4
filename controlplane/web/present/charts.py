"""Geometry of the small charts: where each mark lies. The macros draw it.

Across, a chart is as wide as its room, so `x` is a share of it; its height is fixed, in pixels.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.contract import vocabulary
from controlplane.store.session_views import SessionView
from controlplane.web.present import words

FLOOR = vocabulary.SLOW_FPS
# The rates that are of interest lie close to the floor; what is outside is drawn at the edge.
_LOWEST, _HIGHEST = 22.0, 26.0
_MAX_DOTS = 240
_LEFT, _RIGHT = 2.0, 98.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """One session."""

    x: float  # percent of the width
    y: float  # pixels from above
    kind: str  # canary, control or slow
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Dots:
    """Rates of sessions over time, against the floor."""

    height: int  # pixels
    floor_y: float
    dots: tuple[Dot, ...]
    ticks: tuple[tuple[float, str], ...]  # y and label
    begins: str
    ends: str
    summary: str  # what the chart says, for who does not see it


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One horizontal bar, as a share of its room."""

    label: str
    value: str
    width: float


def sessions(shown: Sequence[SessionView], *, is_canary: bool, height: int = 200) -> Dots | None:
    """Rated sessions as dots; None if there are none.

    Args:
        shown: in any order; the newest few hundred are drawn.
        is_canary: whether the arms are told apart.
        height: of the chart, in pixels.
    """
    rated = rated_of(shown)
    if not rated:
        return None
    first, last = rated[0].started_at, rated[-1].started_at
    return Dots(
        height=height,
        floor_y=_y(FLOOR, height),
        dots=tuple(
            Dot(
                x=_x(one.started_at, first, last),
                y=_y(one.fps or 0.0, height),
                kind=_kind(one, is_canary=is_canary),
                title=f"{words.fps(one.fps)} fps on {one.worker}, {words.flags(one.flags)}",
            )
            for one in rated
        ),
        ticks=tuple((_y(tick, height), f"{tick:g}") for tick in (23.0, 24.0, 25.0)),
        begins=f"{first:%H:%M:%S}Z",
        ends=f"{last:%H:%M:%S}Z",
        summary=_summary(rated, is_canary=is_canary),
    )


def rated_of(shown: Sequence[SessionView]) -> Sequence[SessionView]:
    """The newest of those with a rate, oldest first."""
    rated = (one for one in shown if one.fps is not None and math.isfinite(one.fps))
    return sorted(rated, key=lambda one: one.started_at)[-_MAX_DOTS:]


def bars(values: Sequence[tuple[str, float, str]]) -> tuple[Bar, ...]:
    """Bars of label, value and the value in words, the longest filling the room."""
    most = max((value for _, value, _ in values), default=0.0)
    return tuple(
        Bar(label=label, value=shown, width=round(100 * value / most, 1) if most > 0 else 0.0)
        for label, value, shown in values
    )


def _kind(one: SessionView, *, is_canary: bool) -> str:
    assert one.fps is not None, "only rated sessions are drawn"
    if vocabulary.is_slow(one.fps):
        return "slow"
    return "canary" if is_canary and one.arm == vocabulary.ARM_CANARY else "control"


def _summary(rated: Sequence[SessionView], *, is_canary: bool) -> str:
    if not is_canary:
        return _said(rated, "")
    canary = [one for one in rated if one.arm == vocabulary.ARM_CANARY]
    control = [one for one in rated if one.arm != vocabulary.ARM_CANARY]
    return f"{_said(canary, 'canary: ')}; {_said(control, 'beside it: ')}"


def _said(rated: Sequence[SessionView], prefix: str) -> str:
    rates = [one.fps for one in rated if one.fps is not None]
    if not rates:
        return f"{prefix}no session yet"
    num_slow = sum(vocabulary.is_slow(rate) for rate in rates)
    return (
        f"{prefix}{words.count(len(rates), 'session')}, lowest {words.fps(min(rates))} fps,"
        f" {num_slow} slow"
    )


def _x(moment: datetime, first: datetime, last: datetime) -> float:
    span_s = (last - first).total_seconds()
    share = (moment - first).total_seconds() / span_s if span_s else 0.5
    # Room for half a mark at both ends.
    return round(_LEFT + share * (_RIGHT - _LEFT), 2)


def _y(rate: float, height: int) -> float:
    inside = min(max(rate, _LOWEST), _HIGHEST)
    share = (_HIGHEST - inside) / (_HIGHEST - _LOWEST)
    return round(8 + share * (height - 16), 1)
