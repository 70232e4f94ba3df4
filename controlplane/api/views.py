"""Values as answers show them: plain JSON, times in ISO 8601, durations in seconds."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from pydantic_core import to_jsonable_python


def plain(value: Any) -> Any:
    """`value` as JSON can carry it. Raises ValueError where it has no plain form."""
    return to_jsonable_python(value, timedelta_mode="float", fallback=_unusual)


def page(items: Sequence[Any], *, next_cursor: str | None) -> dict[str, Any]:
    """One page of a list."""
    return {"items": [plain(item) for item in items], "next_cursor": next_cursor}


def whole(items: Sequence[Any]) -> dict[str, Any]:
    """A list that is short by nature, in the form of the others."""
    return page(items, next_cursor=None)


def _unusual(value: Any) -> Any:
    if isinstance(value, Mapping):  # such as the read-only view of a dict
        return dict(value)
    if isinstance(value, Fraction):
        return float(value)
    message = f"{type(value).__name__} has no plain form"
    raise ValueError(message)
