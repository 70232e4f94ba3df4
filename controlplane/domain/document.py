"""Reads a loaded document value by value: what is not allowed is refused under its full key path.

For policies and the flag catalogue. It is given mappings and lists, never text in YAML or JSON, and
it fills in nothing that its caller did not name as a default.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from controlplane.contract.vocabulary import NAME_PATTERN
from controlplane.domain.errors import InvalidValueError, one_of

# Largest first: a value is spelled in the largest unit that divides it, so it has one spelling.
DURATION_UNITS: Final[Mapping[str, timedelta]] = MappingProxyType(
    {
        "d": timedelta(days=1),
        "h": timedelta(hours=1),
        "m": timedelta(minutes=1),
        "s": timedelta(seconds=1),
        "ms": timedelta(milliseconds=1),
    }
)
SIZE_UNITS: Final[Mapping[str, int]] = MappingProxyType(
    {"GiB": 2**30, "MiB": 2**20, "KiB": 2**10, "B": 1}
)
# A share is a whole number of millionths (four digits after the point of a percentage), so that it
# survives a float and comes back exactly.
SHARE_PARTS: Final = 10**6
MAX_TEXT_LENGTH: Final = 500

# Nine digits keep every value within what a timedelta and a 64-bit column can hold.
_QUANTITY = re.compile(r"([0-9]{1,9})([A-Za-z]{1,3})")
_PERCENTAGE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,4}))?%")


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping of the document, its keys known to be allowed."""

    fields: Mapping[str, object]
    path: str

    def __contains__(self, name: str) -> bool:
        """Whether the document says something under `name`, be it null."""
        return name in self.fields

    def key(self, name: str) -> str:
        """Full path of `name`, as a refusal shows it."""
        return f"{self.path}.{name}" if self.path else name

    def table(self, name: str, *, allowed: Collection[str]) -> "Table":
        """The mapping under `name`, with these keys and no other."""
        return table(self.fields.get(name), path=self.key(name), allowed=allowed)

    def named(self, name: str) -> Iterator[tuple[str, object]]:
        """Entries of the mapping under `name`, whose keys the author chose: one or more."""
        entries = _mapping(self.fields.get(name), path=self.key(name))
        if not entries:
            raise self.refusal(name, allowed="a table with one entry or more")
        for entry in entries:
            check_name(entry, key=f"{self.key(name)}.{entry}")
        yield from entries.items()

    def items(self, name: str, *, most: int) -> Iterator[tuple[str, object]]:
        """Path and value of each item of the list under `name`: at least one, at most `most`."""
        value = self.fields.get(name)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise self.refusal(name, allowed=f"a list of 1 to {most} items")
        for index, item in enumerate(value):
            yield f"{self.key(name)}[{index}]", item

    def name(self, name: str) -> str:
        """A name chosen by the author of the document."""
        return check_name(self.fields.get(name), key=self.key(name))

    def word(self, name: str, words: Collection[str], *, default: str | None = None) -> str:
        """One of `words`."""
        value = self._value(name, default)
        if not isinstance(value, str) or value not in words:
            raise self.refusal(name, allowed=one_of(words))
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """Prose on one line, its whitespace collapsed."""
        value = self._value(name, default)
        line = " ".join(value.split()) if isinstance(value, str) else None
        if line is None or not line.isprintable() or len(line) > MAX_TEXT_LENGTH:
            raise self.refusal(name, allowed=f"printable text of at most {MAX_TEXT_LENGTH} letters")
        return line

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise self.refusal(name, allowed="true, false")
        return value

    def whole(self, name: str, *, least: int, most: int, default: int | None = None) -> int:
        """A whole number in [least, most]."""
        value = self._value(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refusal(name, allowed=f"a whole number from {least} to {most}")
        return value

    def number(self, name: str, *, least: float, most: float) -> float:
        """A finite number in [least, most]."""
        value = self.fields.get(name)
        # The range refuses NaN and infinity too, and an integer before it overflows a float.
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not isinstance(value, int | float) or not is_number or not least <= value <= most:
            raise self.refusal(name, allowed=f"a number from {least:g} to {most:g}")
        assert math.isfinite(value), f"{self.key(name)} is within a finite range"
        return float(value)

    def duration(
        self, name: str, *, least: timedelta, most: timedelta, default: timedelta | None = None
    ) -> timedelta:
        """A duration in [least, most]; the default is returned as it is."""
        if name not in self.fields and default is not None:
            return default
        number, unit = self._quantity(name)
        value = number * DURATION_UNITS[unit] if unit in DURATION_UNITS else None
        if value is None or not least <= value <= most:
            bounds = f"from {duration_text(least)} to {duration_text(most)}"
            units = ", ".join(DURATION_UNITS)
            raise self.refusal(name, allowed=f"a whole number and a unit ({units}), {bounds}")
        return value

    def size(self, name: str, *, most: int) -> int:
        """A number of bytes in [0, most]."""
        number, unit = self._quantity(name)
        value = number * SIZE_UNITS[unit] if unit in SIZE_UNITS else None
        if value is None or value > most:
            units = ", ".join(SIZE_UNITS)
            raise self.refusal(
                name, allowed=f"a whole number and a unit ({units}), at most {size_text(most)}"
            )
        return value

    def share(self, name: str, *, most: Fraction, default: Fraction | None = None) -> Fraction:
        """A percentage in (0, most], exactly."""
        if name not in self.fields and default is not None:
            return default
        value = self.fields.get(name)
        match = _PERCENTAGE.fullmatch(value) if isinstance(value, str) else None
        share = None if match is None else Fraction(f"{match[1]}.{match[2] or 0}") / 100
        if share is None or not 0 < share <= most:
            bound = share_text(most)
            raise self.refusal(
                name, allowed=f"a percentage above 0% and at most {bound}, such as 12.5%"
            )
        return share

    def refusal(self, name: str, *, allowed: str) -> InvalidValueError:
        """The error that says what may stand under `name`."""
        return InvalidValueError(self.key(name), self.fields.get(name), allowed=allowed)

    def _value(self, name: str, default: object) -> object:
        return self.fields.get(name, default)

    def _quantity(self, name: str) -> tuple[int, str]:
        value = self.fields.get(name)
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        return (int(match[1]), match[2]) if match else (0, "")


def table(value: object, *, path: str, allowed: Collection[str]) -> Table:
    """`value` as a table with these keys and no other.

    Raises:
        InvalidValueError: it is no mapping, or a key is unknown.
    """
    fields = _mapping(value, path=path)
    for name in fields:
        if name not in allowed:
            key = f"{path}.{name}" if path else name or "''"
            raise InvalidValueError(key, fields[name], allowed=f"the keys {one_of(allowed)}")
    return Table(fields, path)


def check_name(value: object, *, key: str) -> str:
    """`value` if it is a name that may be stored and shown. Raises InvalidValueError if not."""
    if not isinstance(value, str) or not re.fullmatch(NAME_PATTERN, value):
        raise InvalidValueError(key, value, allowed=f"names that match {NAME_PATTERN}")
    return value


def duration_text(value: timedelta) -> str:
    """`value` as documents spell it: in the largest unit that divides it."""
    unit = next(unit for unit, width in DURATION_UNITS.items() if not value % width)
    return f"{value // DURATION_UNITS[unit]}{unit}"


def size_text(value: int) -> str:
    """`value` bytes as documents spell them: in the largest unit that divides them."""
    if not value:
        return "0B"
    unit = next(unit for unit, width in SIZE_UNITS.items() if not value % width)
    return f"{value // SIZE_UNITS[unit]}{unit}"


def share_text(value: Fraction | float) -> str:
    """`value` as a percentage, exact to `SHARE_PARTS`."""
    whole, rest = divmod(round(value * SHARE_PARTS), SHARE_PARTS // 100)
    fraction = f".{rest:04d}".rstrip("0") if rest else ""
    return f"{whole}{fraction}%"


def _mapping(value: object, *, path: str) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidValueError(path or "document", value, allowed="a table with words as keys")
    return value
