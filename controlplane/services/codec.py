"""Frozen dataclasses as JSON values and back, by their type hints: nothing is lost on the way.

A float comes back with the same bits, an int as an int; what is not finite is spelled, for JSON has
no word for it. A tuple of dataclasses is a table, whose columns are named once. No value is
interpreted here.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from math import inf, isfinite, isnan, nan
from typing import Any, Final, get_args, get_origin, get_type_hints

from controlplane.domain.errors import DomainError

_MICROSECOND: Final = timedelta(microseconds=1)
_NOT_FINITE: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


class UnreadableError(DomainError):
    """What was written is not of the form that it is read as."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where or 'it'} cannot be read: {why}")
        self.where = where


def encoded(value: Any, form: Any) -> Any:
    """`value`, which is of type `form`, as JSON values; durations in microseconds.

    A NUL in text is written as U+FFFD, which is what the databases keep of it.
    """
    if value is None:
        return None
    form = _present(form)
    origin = get_origin(form)
    if origin is tuple:
        return _table(value, get_args(form)[0])
    if origin is frozenset:
        return sorted(encoded(one, get_args(form)[0]) for one in value)
    if origin is Mapping:
        of = get_args(form)[1]
        return {_text(str(key)): encoded(one, of) for key, one in value.items()}
    if _is_record(form):
        return {name: encoded(getattr(value, name), of) for name, of in _hints(form).items()}
    return _scalar(value)


def decoded(written: Any, form: Any, *, where: str = "") -> Any:
    """What `encoded` wrote, as a value of type `form`; a field that is not there has its default.

    Raises:
        UnreadableError: naming the place that is not of that form.
    """
    if written is None and _is_optional(form):
        return None
    form = _present(form)
    origin = get_origin(form)
    if origin is tuple:
        return _rows(written, get_args(form)[0], where=where)
    if origin is frozenset:
        items = _checked(written, list, where=where)
        return frozenset(decoded(one, get_args(form)[0], where=where) for one in items)
    if origin is Mapping:
        of_key, of = get_args(form)
        items = _checked(written, dict, where=where)
        return {
            _key(key, of_key, where=where): decoded(one, of, where=f"{where}.{key}")
            for key, one in items.items()
        }
    if _is_record(form):
        return _built(_checked(written, dict, where=where), form, where=where)
    return _read(written, form, where=where)


def _table(values: tuple[Any, ...], form: Any) -> Any:
    if not _is_record(form) or not values:
        return [encoded(value, form) for value in values]
    hints = _hints(form)
    rows = [[encoded(getattr(value, name), of) for name, of in hints.items()] for value in values]
    return {"columns": list(hints), "rows": rows}


def _rows(written: Any, form: Any, *, where: str) -> tuple[Any, ...]:
    if not isinstance(written, dict):
        items = _checked(written, list, where=where)
        return tuple(decoded(one, form, where=f"{where}[{n}]") for n, one in enumerate(items))
    columns = _checked(written.get("columns"), list, where=f"{where}.columns")
    rows = _checked(written.get("rows"), list, where=f"{where}.rows")
    if set(written) != {"columns", "rows"} or not all(isinstance(one, str) for one in columns):
        raise UnreadableError(where, "a table has named columns, and rows")
    made = []
    for number, row in enumerate(rows):
        place = f"{where}[{number}]"
        if not isinstance(row, list) or len(row) != len(columns):
            raise UnreadableError(place, f"a row has {len(columns)} values")
        made.append(_built(dict(zip(columns, row, strict=True)), form, where=place))
    return tuple(made)


def _built(written: Mapping[str, Any], form: Any, *, where: str) -> Any:
    hints = _hints(form)
    for name in written:
        if name not in hints:
            raise UnreadableError(f"{where}.{name}".lstrip("."), "there is no such field")
    for name in _required(form):
        if name not in written:
            raise UnreadableError(f"{where}.{name}".lstrip("."), "it is missing")
    values = {
        name: decoded(one, hints[name], where=f"{where}.{name}".lstrip("."))
        for name, one in written.items()
    }
    try:
        return form(**values)
    except AssertionError as error:  # an invariant of the value itself
        raise UnreadableError(where, str(error)) from error


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return _spelled(value)
    if isinstance(value, str):  # a word of ours is one, too
        return _text(str(value))
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    if isinstance(value, Fraction):
        return str(value)
    assert isinstance(value, int | float), f"{type(value).__name__} has no written form"
    return value


def _read(written: Any, form: Any, *, where: str) -> Any:
    if form is float and isinstance(written, str) and written in _NOT_FINITE:
        return _NOT_FINITE[written]
    if form in (int, float) and isinstance(written, int | float):
        return written  # an int in a place of floats stays one, as a reason may show it
    if form is bool and isinstance(written, bool):
        return written
    try:
        if form is timedelta and isinstance(written, int):
            return written * _MICROSECOND
        if form is datetime and isinstance(written, str):
            return _moment(written)
        if isinstance(written, str) and issubclass(form, str | Fraction):
            return form(written)
    except (ValueError, OverflowError, ZeroDivisionError) as error:
        raise UnreadableError(where, f"{written!r:.100} is no {form.__name__}") from error
    raise UnreadableError(where, f"{written!r:.100} is no {form.__name__}")


def _moment(written: str) -> datetime:
    at = datetime.fromisoformat(written)
    if at.tzinfo is None:
        raise ValueError("a time without a zone")
    return at.astimezone(UTC)


def _spelled(value: float) -> str:
    return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _text(value: str) -> str:
    return value.replace("\x00", "\ufffd")


def _key(key: str, form: Any, *, where: str) -> Any:
    try:
        return form(key)
    except ValueError as error:
        raise UnreadableError(f"{where}.{key}", f"{key!r:.100} is no {form.__name__}") from error


def _checked(written: Any, kind: type[Any], *, where: str) -> Any:
    if not isinstance(written, kind):
        raise UnreadableError(where, f"{written!r:.100} is no {kind.__name__}")
    return written


def _is_record(form: Any) -> bool:
    return is_dataclass(form)


def _is_optional(form: Any) -> bool:
    return get_origin(form) is types.UnionType and type(None) in get_args(form)


def _present(form: Any) -> Any:
    """`form` without None."""
    if get_origin(form) is not types.UnionType:
        return form
    (known,) = (one for one in get_args(form) if one is not type(None))
    return known


@cache
def _hints(form: Any) -> Mapping[str, Any]:
    hints = get_type_hints(form)
    return {field.name: hints[field.name] for field in fields(form)}


@cache
def _required(form: Any) -> tuple[str, ...]:
    return tuple(
        field.name
        for field in fields(form)
        if field.default is MISSING and field.default_factory is MISSING
    )
