"""Taking positions back before the prefix is further away than the model was trained for.

Three ways to the same distances in time, each the oracle of the others. Whichever is taken, a
later one may be another: a cache knows how far its window and its prefix have been turned.
"""

from enum import StrEnum
from typing import assert_never

from worker.cache import contents as contents_
from worker.cache.contents import Contents, KeyValueCache
from worker.cache.ring import RingCursor


class PositionReset(StrEnum):
    """The variants of `position_reset`."""

    REBUILD = "rebuild"  # the fallback: fill the cache anew from keys computed afresh
    DELTA_WINDOW = "delta_window"  # turn the window's keys back
    DELTA_SINKS = "delta_sinks"  # turn the prefix's keys on instead, which are a tenth as many


class MissingContentsError(ValueError):
    """A rebuild was asked for and nothing was given to rebuild from."""


def apply(
    variant: PositionReset,
    cache: KeyValueCache,
    cursor: RingCursor,
    *,
    clean: Contents | None = None,
) -> None:
    """Bring the angles in `cache` to where `cursor` counts from; call before its frame is opened.

    Args:
        variant: which way.
        cache: as the step before left it.
        cursor: of the next frame; without a shift there is nothing to do.
        clean: for a rebuild: prefix and window from the last clean latents.

    Raises:
        MissingContentsError: a rebuild without `clean`.
        ValueError: `clean` ends at another frame than the cursor's predecessor.
    """
    shift = contents_.base_of(cursor) - cache.origin.base
    if shift == 0:
        return
    match variant:
        case PositionReset.REBUILD:
            rebuild(cache, cursor, clean=clean)
        case PositionReset.DELTA_WINDOW:
            cache.turn_window(shift)
        case PositionReset.DELTA_SINKS:
            cache.turn_prefix(shift)
        case _:
            assert_never(variant)


def rebuild(cache: KeyValueCache, cursor: RingCursor, *, clean: Contents | None) -> None:
    """Fill `cache` anew from `clean`, with the positions of `cursor`; forgets every error so far.

    Raises: MissingContentsError, ValueError; see `apply`.
    """
    if clean is None:
        message = "a rebuild needs the keys and values of the last clean latents; none were given"
        raise MissingContentsError(message)
    if clean.num_frames != cursor.num_frames:
        message = (
            f"clean.num_frames is {clean.num_frames}; "
            f"allowed: {cursor.num_frames}, the number of the next frame"
        )
        raise ValueError(message)
    cache.load(
        Contents(
            prefix=clean.prefix,
            frames=clean.frames,
            num_frames=clean.num_frames,
            base=contents_.base_of(cursor),
        )
    )
