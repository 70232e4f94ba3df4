"""A picture of the rules: harmed sessions against the worst rate of false rollbacks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log10
from typing import Final

_WIDTH, _HEIGHT = 980, 580
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 560, 56, 500  # of the plot; labels of the crowd stand beside it
_LOWEST, _HIGHEST = 0.1, 100.0  # percent
_LINE: Final = 18  # between labels
_CROWDED: Final = 20.0  # percent: from here on labels would lie on each other
_OURS, _OTHER, _INK, _FAINT = "#0b6e4f", "#b3402a", "#1f2328", "#d0d7de"


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One rule."""

    name: str
    false_percent: float  # worst of the qualifying worlds
    harmed: float  # headline
    qualifies: bool


def drawn(points: Sequence[Point], *, title: str, caption: str) -> str:
    """An SVG with a point a rule, green where it qualifies."""
    most = 5 * (int(max(point.harmed for point in points) / 5) + 1)
    parts = [
        _opened(title),
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#ffffff"/>',
        _text(_LEFT, 28, title, size=16, weight=600),
        *_axes(most),
        *_points(points, most),
        _text(_LEFT, _HEIGHT - 12, caption, size=11, fill="#57606a"),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _opened(title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
        f' width="{_WIDTH}" height="{_HEIGHT}" font-family="system-ui, sans-serif"'
        f' font-size="13" role="img" aria-label="{escape(title)}">'
    )


def _axes(most: int) -> Iterator[str]:
    limit = _x(1.0)
    yield (
        f'<rect x="{_LEFT}" y="{_TOP}" width="{limit - _LEFT:.0f}" height="{_BOTTOM - _TOP}"'
        ' fill="#e8f5ee"/>'
    )
    yield _text(_LEFT + 6, _TOP + 16, "at most 1 % false rollbacks", size=11, fill=_OURS)
    for percent in (0.1, 1.0, 10.0, 100.0):
        x = _x(percent)
        yield _line(x, _TOP, x, _BOTTOM)
        yield _text(x, _BOTTOM + 18, f"{percent:g}", anchor="middle")
    for harmed in range(0, most + 1, 5):
        y = _y(harmed, most)
        yield _line(_LEFT, y, _RIGHT, y)
        yield _text(_LEFT - 8, y + 4, str(harmed), anchor="end")
    middle = (_LEFT + _RIGHT) / 2
    label = "worst false rollbacks in five healthy worlds, % of canaries (logarithmic)"
    yield _text(middle, _BOTTOM + 38, label, anchor="middle")
    yield (
        f'<text transform="translate(24 {(_TOP + _BOTTOM) / 2:.0f}) rotate(-90)"'
        f' text-anchor="middle" fill="{_INK}">harmed sessions until rollback, mean</text>'
    )


def _points(points: Sequence[Point], most: int) -> Iterator[str]:
    """Dots with their labels: beside the dot, away from the crowd, or in a column for the crowd."""
    is_crowded = [point.false_percent >= _CROWDED for point in points]
    crowd = [point for point, crowded in zip(points, is_crowded, strict=True) if crowded]
    others = [point for point, crowded in zip(points, is_crowded, strict=True) if not crowded]
    for point, label_y in _spread(crowd, most):
        x, y = _x(point.false_percent), _y(point.harmed, most)
        yield _line(x, y, _RIGHT + 22, label_y, stroke="#8c959f")
        yield _text(_RIGHT + 26, label_y + 4, _told(point))
        yield _dot(x, y, point)
    for point, label_y in _spread(others, most):
        x, y = _x(point.false_percent), _y(point.harmed, most)
        is_right_half = x > (_LEFT + _RIGHT) / 2
        away = -12 if is_right_half else 12
        yield _line(x, y, x + away * 0.8, label_y, stroke="#8c959f")
        yield _text(
            x + away,
            label_y + 4,
            _told(point),
            anchor="end" if is_right_half else "start",
            weight=600 if point.qualifies else 400,
        )
        yield _dot(x, y, point)


def _spread(points: Sequence[Point], most: int) -> Iterator[tuple[Point, float]]:
    """Points from the top down, each with the height of its label, a line apart at least."""
    last_y = 0.0
    for point in sorted(points, key=lambda point: -point.harmed):
        last_y = max(last_y + _LINE, _y(point.harmed, most))
        yield point, last_y


def _told(point: Point) -> str:
    return f"{point.name} ({point.harmed:.1f})"


def _x(percent: float) -> float:
    share = log10(max(percent, _LOWEST) / _LOWEST) / log10(_HIGHEST / _LOWEST)
    return _LEFT + share * (_RIGHT - _LEFT)


def _y(harmed: float, most: int) -> float:
    return _BOTTOM - harmed / most * (_BOTTOM - _TOP)


def _dot(x: float, y: float, point: Point) -> str:
    fill = _OURS if point.qualifies else _OTHER
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{fill}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, *, stroke: str = _FAINT) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"/>'


def _text(  # noqa: PLR0913 - what a text has
    x: float,
    y: float,
    text: str,
    *,
    size: int = 13,
    weight: int = 400,
    anchor: str = "start",
    fill: str = _INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}"'
        f' text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>'
    )
