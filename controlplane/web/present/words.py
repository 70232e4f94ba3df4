"""Numbers, times and states as words; and the one word that answers "is it safe?"."""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

NOTHING = "–"  # noqa: RUF001 - an en dash is what tables show for nothing
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_KIB = 1024
_SPACES = "\n\t"


class Tone(StrEnum):
    """How a state is drawn: always with its word and its shape, never by colour alone."""

    GOOD = "good"
    WATCH = "watch"
    BAD = "bad"
    CALM = "calm"  # nothing is going on


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Is it safe, and why: the first line of a page."""

    tone: Tone
    word: str
    why: str
    command: str = ""  # what a person can do about it


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """A state in a table or a tile."""

    tone: Tone
    word: str
    why: str = ""


def duration(span: timedelta) -> str:
    """`4 s`, `3 min`, `2 h 5 min`, `3 d`: at most two units, never more exact than of use."""
    seconds = max(0, round(span.total_seconds()))
    if seconds < 2 * _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min"
    if seconds < _DAY:
        return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"
    return f"{seconds // _DAY} d"


def ago(moment: datetime | None, *, now: datetime) -> str:
    """How long ago that was."""
    return NOTHING if moment is None else f"{duration(now - moment)} ago"


def at(moment: datetime | None) -> str:
    """UTC to the second."""
    return NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}Z"


def fps(value: float | None) -> str:
    """Frames a second, cut and not rounded: 23.998 must not read as the 24.00 that it missed."""
    if value is None or not math.isfinite(value):
        return NOTHING
    return f"{math.floor(value * 100) / 100:.2f}"


def size(num_bytes: float | None) -> str:
    """Bytes in binary units."""
    if num_bytes is None:
        return NOTHING
    value, units = float(num_bytes), ["B", "KiB", "MiB", "GiB"]
    while value >= _KIB and len(units) > 1:
        value /= _KIB
        units.pop(0)
    return f"{value:.0f} B" if units[0] == "B" else f"{value:.1f} {units[0]}"


def percent(part: float, of: float) -> str:
    """A share; nothing where there is nothing to share."""
    return f"{100 * part / of:.1f} %" if of else NOTHING


def count(number: int, noun: str) -> str:
    """`1 worker`, `3 workers`."""
    if number == 1:
        return f"1 {noun}"
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{number} {plural}"


def flags(values: Mapping[str, str]) -> str:
    """`flag=variant` pairs, by flag."""
    return ", ".join(f"{flag}={variant}" for flag, variant in sorted(values.items())) or NOTHING


def visible(text: str) -> str:
    """`text` with what shows nothing written out: it could turn or hide the words around it."""
    if text.isprintable():
        return text
    return "".join(_written(char) for char in text)


def _written(char: str) -> str:
    is_seen = char in _SPACES or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp")
    return char if is_seen else char.encode("unicode_escape").decode()


def spoken(word: str) -> str:
    """A word of the code as people write it."""
    return word.replace("_", " ")
