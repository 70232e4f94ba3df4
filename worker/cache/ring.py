"""Which slot and which position the next frame takes: pure integers, decided by rank 0.

Once the angle is in the key a slot carries no meaning, so the window advances without a copy. A
session may run for hours, so positions are taken back by `reset_period` whenever they reach the
top; `reset_period` is above the window, so a key is turned back at most once in its life.
"""

from dataclasses import dataclass, replace
from typing import Self

from worker.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class RingCursor:
    """Where the next frame goes."""

    window: int
    reset_period: int
    num_frames: int = 0  # written so far
    position: int = 0  # in time, of the next frame; below `reset_period + window`
    shift: int = 0  # by how much the kept keys must be turned back before the next frame

    @classmethod
    def begun(cls, model: ModelConfig) -> Self:
        """Before the first frame of a cache."""
        return cls(window=model.window, reset_period=model.reset_period)

    @property
    def slot(self) -> int:
        """In frames, within the window."""
        return self.num_frames % self.window

    @property
    def num_kept(self) -> int:
        """Frames in the window once the next one is written."""
        return min(self.num_frames + 1, self.window)


def advanced(cursor: RingCursor) -> RingCursor:
    """The cursor after its frame is written."""
    position = cursor.position + 1
    shift = cursor.reset_period if position == cursor.reset_period + cursor.window else 0
    return replace(cursor, num_frames=cursor.num_frames + 1, position=position - shift, shift=shift)
