"""What a cache holds, told in a form that belongs to no format: raw keys, values, frame numbers.

Every format can say what it holds and can be filled from it. So any format is checked against any
other, a flip between two is a trip through here, and so is a rebuild from freshly computed keys.
"""

# ruff: noqa: N803, N815 - shape suffixes in names; the legend is below

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from worker.cache.ring import RingCursor
from worker.config import ModelConfig
from worker.ops import rope
from worker.ops.pre_attention import Heads, PreAttention


# B = blocks, H = heads of this rank, L = prefix tokens, T = tokens of a frame, D = head width
@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Normed keys that are not turned, and values, of some tokens in every block; float32."""

    k_BHTD: Tensor
    v_BHTD: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Everything that attention can see, at the boundary between two steps: copies, no views."""

    prefix: Tokens
    frames: tuple[Tokens, ...]  # oldest first; the last has number `num_frames - 1`
    num_frames: int  # written since the session began
    base: int  # by how much positions have been taken back, see `Origin`


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the stored angles are measured from. Host integers: a session of hours overruns none.

    Attention sees only distances in time. Frame n stands at `n - turned_back` and the prefix at
    `prefix_time`, so a reset may turn either; what counts is the sum of the two.
    """

    turned_back: int = 0
    prefix_time: int = 0

    @property
    def base(self) -> int:
        """Frame n is `n - base` after the prefix."""
        return self.turned_back + self.prefix_time


class KeyValueCache(Protocol):
    """One session's cache on one rank, whatever its format."""

    @property
    def origin(self) -> Origin:
        """Where the stored angles are measured from."""
        ...

    def write_prefix(self, prefix: Tokens) -> None:
        """Fill the prefix of an empty cache, all blocks at once."""
        ...

    def open_frame(self, cursor: RingCursor) -> None:
        """Begin the frame of `cursor`; all passes of a step write the same slots."""
        ...

    def prepare(self, block: int, heads: Heads) -> Tensor:
        """Take in the new tokens of one block; returns their queries, normed and turned."""
        ...

    def attend(self, block: int, q_HTD: Tensor) -> Tensor:
        """Attention of prepared queries over everything written."""
        ...

    def turn_window(self, shift: int) -> None:
        """Take the kept frames back by `shift` in time."""
        ...

    def turn_prefix(self, shift: int) -> None:
        """Move the prefix on by `shift` in time."""
        ...

    def use(self, pre_attention: PreAttention) -> None:
        """Take in new tokens by `pre_attention` from now on; the oracle has one way only."""
        ...

    @property
    def num_bytes(self) -> int:
        """Allocated for slots and masters."""
        ...

    def contents(self) -> Contents:
        """What attention can see, without angles."""
        ...

    def load(self, contents: Contents) -> None:
        """Hold `contents` and nothing else; the angles start afresh at its base."""
        ...


def base_of(cursor: RingCursor) -> int:
    """By how much the positions of `cursor` have been taken back since the session began."""
    return cursor.num_frames - cursor.position


def widened(x_BHTD: Tensor) -> Tensor:
    """A copy in float32, of float32 too: the slots of `x_BHTD` will be written again."""
    return x_BHTD.to(torch.float32, copy=True)


def check_base(origin: Origin, cursor: RingCursor) -> None:
    """Raises: AssertionError if positions were set back and nothing was turned for it."""
    assert origin.base == base_of(cursor), (
        f"frame {cursor.num_frames} has its positions {base_of(cursor)} back, the cache "
        f"{origin.base}; the position reset was not applied"
    )


def check_window(contents: Contents, model: ModelConfig) -> None:
    """Raises: ValueError if there are more frames or prefix tokens than a cache has room for."""
    num_frames, length = len(contents.frames), contents.prefix.k_BHTD.shape[2]
    if num_frames > model.window:
        message = f"contents have {num_frames} frames; allowed: up to the window of {model.window}"
        raise ValueError(message)
    if length > model.first_forward_bounds[1]:
        message = f"the prefix has {length} tokens; allowed: up to {model.first_forward_bounds[1]}"
        raise ValueError(message)


def prefix_turn(length: int, *, time: int, split: tuple[int, int, int]) -> rope.Turn:
    """The turn of `length` prompt tokens at `time`, one column after the other."""
    zeros = torch.zeros(length, dtype=torch.int64)
    columns = torch.arange(length, dtype=torch.int64)
    return rope.turn(torch.full_like(zeros, time), zeros, columns, split=split)


def frame_turn(model: ModelConfig, position: int) -> rope.Turn:
    """The turn of one frame. Built from the integer: there is no table whose end could come."""
    return rope.frame_turn(
        position, grid=model.grid, num_extra=model.num_extra_tokens, split=model.rope_split
    )


def undone(turn: rope.Turn) -> rope.Turn:
    """The turn that takes `turn` back."""
    return rope.Turn(turn.cos_TE, -turn.sin_TE)
