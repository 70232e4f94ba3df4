"""Values as answers show them: plain JSON, times in ISO 8601, durations in seconds ending in `_s`."""

import dataclasses
from collections.abc import Mapping, Sequence, Set as AbstractSet
from datetime import datetime, timedelta
from enum import Enum
from fractions import Fraction
from typing import Any

from pydantic import BaseModel


def plain(value: Any) -> Any:
    """`value` as JSON can carry it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
        return plain(fields)
    match value:
        case Enum():
            return value.value
        case None | bool() | int() | float() | str():
            return value
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Fraction():
            return float(value)
        case BaseModel():
            return value.model_dump(mode="json")
        case Mapping():
            return dict(_member(str(key), one) for key, one in value.items())
        case Sequence():
            return [plain(one) for one in value]
        case AbstractSet():
            return sorted(plain(one) for one in value)
    message = f"{type(value).__name__} has no plain form"
    raise TypeError(message)


def page(items: Sequence[Any], *, next_cursor: str | None) -> dict[str, Any]:
    """One page of a list."""
    return {"items": [plain(item) for item in items], "next_cursor": next_cursor}


def _member(key: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, timedelta):
        return f"{key}_s", value.total_seconds()
    return key, plain(value)
