"""Keyset pages: one item more than asked for is read, so that the last page says that it is."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from controlplane.api import views

_T = TypeVar("_T")


def page(items: Sequence[_T], *, limit: int, key: Callable[[_T], str | int]) -> dict[str, Any]:
    """The answer for a page of at most `limit` of `items`, of which there may be one more.

    Args:
        items: what was read with a limit of `limit + 1`.
        limit: that was asked for.
        key: of an item, from which the next page goes on.
    """
    shown = items[:limit]
    has_more = len(items) > limit
    return views.page(shown, next_cursor=str(key(shown[-1])) if has_more else None)
