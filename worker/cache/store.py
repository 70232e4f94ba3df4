"""The stored keys and values of one session on one rank: rotated at write, read without a copy.

The prefix stands right-aligned in front of the ring, so that whatever its length and however full
the ring, the valid slots are one contiguous slice.
"""

# ruff: noqa: N803 - shape suffixes in names; the legend is below

import torch
from torch import Tensor

from worker.config import ModelConfig
from worker.ops import rope


# L = prefix tokens, T = tokens of a frame, H = heads of this rank, S = valid slots, D = head width
class RingCache:
    """Keys and values of every block. Never reads a slot that was not written."""

    def __init__(self, model: ModelConfig, *, num_heads: int) -> None:
        """Allocate for the longest prefix and a full window."""
        self._prefix_slots = model.first_forward_bounds[1]
        self._tokens = model.tokens_per_frame
        self._split = model.rope_split
        self._first = self._prefix_slots
        self._end = self._prefix_slots
        slots = self._prefix_slots + model.window * self._tokens
        shape = (model.num_blocks, num_heads, slots, model.head_width)
        dtype = getattr(torch, model.cache_dtype)
        # Zeroed, not empty: a NaN in a slot that was never written must not leak through a mask.
        self._keys = torch.zeros(shape, dtype=dtype)
        self._values = torch.zeros(shape, dtype=dtype)

    def open_prefix(self, length: int) -> None:
        """Make room for a prefix of `length` tokens in an empty cache."""
        self._first = self._prefix_slots - length

    def open_frame(self, slot: int) -> None:
        """Make room for the frame in `slot`; all passes of a step write the same slots."""
        end = self._prefix_slots + (slot + 1) * self._tokens
        self._end = max(self._end, end)

    def write_prefix(self, block: int, k_HLD: Tensor, v_HLD: Tensor) -> None:
        """Store rotated keys and values of the prefix."""
        self._write(block, self._first, k_HLD, v_HLD)

    def write_frame(self, block: int, slot: int, k_HTD: Tensor, v_HTD: Tensor) -> None:
        """Store rotated keys and values of the frame in `slot`."""
        self._write(block, self._prefix_slots + slot * self._tokens, k_HTD, v_HTD)

    def read(self, block: int) -> tuple[Tensor, Tensor]:
        """k_HSD and v_HSD, views of all valid slots."""
        return (
            self._keys[block, :, self._first : self._end],
            self._values[block, :, self._first : self._end],
        )

    def shift_window(self, shift: int) -> None:
        """Turn the window's keys back by `shift` in time; all else keeps its bytes."""
        if self._end == self._prefix_slots:
            return
        window = self._keys[:, :, self._prefix_slots : self._end, : self._split[0]]
        window.copy_(rope.rotated(window, rope.shift_turn(shift, split=self._split)))

    def _write(self, block: int, at: int, k_HTD: Tensor, v_HTD: Tensor) -> None:
        end = at + k_HTD.shape[1]
        self._keys[block, :, at:end].copy_(k_HTD)
        self._values[block, :, at:end].copy_(v_HTD)
