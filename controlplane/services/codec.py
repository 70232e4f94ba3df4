"""Frozen dataclasses as JSON values and back, by their type hints: nothing is lost on the way.

A float comes back with the same bits, an int as an int; what is not finite is spelled, for JSON has
no word for it. A tuple of dataclasses is a table, whose columns are named once. No value is
interpreted here.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cache
from math import inf, isfinite, isnan, nan
from typing import Any, Final, get_args, get_origin, get_type_hints

from controlplane.domain.errors import DomainError

Writer = Callable[[Any], Any]
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
    return _writer(form)(value)


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


@cache
def _writer(form: Any) -> Writer:
    """What writes values of `form`: a judgement looks at thousands, so types are read once."""
    if _is_optional(form):
        of = _writer(_present(form))
        return lambda value: None if value is None else of(value)
    origin = get_origin(form)
    if origin is tuple:
        return _table_writer(get_args(form)[0])
    if origin is frozenset:
        of = _writer(get_args(form)[0])
        return lambda value: sorted(map(of, value))
    if origin is Mapping:
        of = _writer(get_args(form)[1])
        return lambda value: {_text(str(key)): of(one) for key, one in value.items()}
    if _is_record(form):
        columns = _columns(form)
        return lambda value: {name: of(getattr(value, name)) for name, of in columns}
    return _scalar


def _table_writer(form: Any) -> Writer:
    if not _is_record(form):
        of = _writer(form)
        return lambda values: [of(value) for value in values]
    columns = _columns(form)

    def table(values: tuple[Any, ...]) -> Any:
        if not values:
            return []
        rows = [[of(getattr(value, name)) for name, of in columns] for value in values]
        return {"columns": [name for name, _ in columns], "rows": rows}

    return table


def _columns(form: Any) -> tuple[tuple[str, Writer], ...]:
    return tuple((name, _writer(of)) for name, of in _hints(form).items())


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
    if isinstance(value, str):  # a word of ours is one, too
        return _text(str(value))
    if isinstance(value, float) and not isfinite(value):
        return _spelled(value)
    if isinstance(value, int | float):
        return value
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    if isinstance(value, timedelta):
        return value // _MICROSECOND
    assert isinstance(value, Fraction), f"{type(value).__name__} has no written form"
    return str(value)


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
