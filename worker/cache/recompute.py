"""The oracle: raw keys and values in order; turned, and rounded to FP8 if asked, in every call.

This is the cache upkeep that a write-time cache saves: each read works on the whole window, and a
full window is slid by copying. Right first; nothing here is meant to be fast.
"""

# ruff: noqa: N803 - shape suffixes in names; the legend is below

from dataclasses import replace

import torch
from torch import Tensor

from worker.cache import contents as contents_
from worker.cache.contents import Contents, Origin, Tokens
from worker.cache.ring import RingCursor
from worker.cache.scales import CacheScales
from worker.config import ModelConfig
from worker.ops import attention, fp8, norm, rope
from worker.ops.pre_attention import Heads, PreAttention


# B = blocks, H = heads of this rank, T = tokens of a frame, S = valid slots, D = head width
class RecomputeCache:
    """Keys and values of one session on one rank, as they came."""

    def __init__(
        self,
        model: ModelConfig,
        *,
        num_heads: int,
        dtype: torch.dtype = torch.bfloat16,
        scales: CacheScales | None = None,
    ) -> None:
        """Allocate for the longest prefix and a full window; `scales` ask for FP8 in every call."""
        self._model = model
        self._tokens = model.tokens_per_frame
        self._prefix_slots = model.first_forward_bounds[1]
        self._first = self._end = self._prefix_slots
        self._num_frames = 0
        self._origin = Origin()
        self._scales = scales
        slots = self._prefix_slots + model.window * self._tokens
        shape = (model.num_blocks, num_heads, slots, model.head_width)
        self._keys = torch.zeros(shape, dtype=dtype)
        self._values = torch.zeros(shape, dtype=dtype)

    @property
    def origin(self) -> Origin:
        """Where angles are measured from."""
        return self._origin

    def write_prefix(self, prefix: Tokens) -> None:
        """Fill the prefix of an empty cache."""
        self._first = self._prefix_slots - prefix.k_BHTD.shape[2]
        self._keys[:, :, self._first : self._prefix_slots].copy_(prefix.k_BHTD)
        self._values[:, :, self._first : self._prefix_slots].copy_(prefix.v_BHTD)

    def open_frame(self, cursor: RingCursor) -> None:
        """Begin the frame of `cursor` at the end; a full window is slid to make room."""
        contents_.check_base(self._origin, cursor)
        if self._end == self._keys.shape[2]:
            for buffer in (self._keys, self._values):
                kept = buffer[:, :, self._prefix_slots + self._tokens :].clone()
                buffer[:, :, self._prefix_slots : -self._tokens].copy_(kept)
        else:
            self._end += self._tokens
        self._num_frames = cursor.num_frames + 1

    def prepare(self, block: int, heads: Heads) -> Tensor:
        """Keep the new tokens of one block raw; returns their turned queries."""
        newest = slice(self._end - self._tokens, self._end)
        self._keys[block, :, newest].copy_(norm.rms_norm(heads.k_HTD))
        self._values[block, :, newest].copy_(heads.v_HTD)
        return rope.rotated(norm.rms_norm(heads.q_HTD), self._frame_turn(self._num_frames - 1))

    def attend(self, block: int, q_HTD: Tensor) -> Tensor:
        """Attention over everything, turned and rounded for this call."""
        keys, values = self.read(block)
        if self._scales is None:
            return attention.attend(q_HTD, keys, values)
        return fp8.attend(q_HTD, keys, values, self._scales.of_block(block))

    def read(self, block: int) -> tuple[Tensor, Tensor]:
        """k_HSD and v_HSD as attention takes them: prefix first, then frames from the oldest."""
        valid = slice(self._first, self._end)
        keys = rope.rotated(self._keys[block, :, valid], self._turn())
        values = self._values[block, :, valid]
        if self._scales is None:
            return keys, values
        scales = self._scales.of_block(block)
        return fp8.rounded(keys, scales.key_H)[0], fp8.rounded(values, scales.value_H)[0]

    def turn_window(self, shift: int) -> None:
        """Take the kept frames back by `shift`: nothing is stored turned, so only the origin is."""
        self._origin = replace(self._origin, turned_back=self._origin.turned_back + shift)

    def turn_prefix(self, shift: int) -> None:
        """Move the prefix on by `shift`, likewise."""
        self._origin = replace(self._origin, prefix_time=self._origin.prefix_time + shift)

    def use(self, pre_attention: PreAttention) -> None:
        """Nothing: keys are kept as they come, and turned when they are read."""

    @property
    def num_bytes(self) -> int:
        """Allocated for the slots."""
        return self._keys.nbytes + self._values.nbytes

    def contents(self) -> Contents:
        """What attention can see, in float32."""
        return Contents(
            prefix=self._at(self._first, self._prefix_slots),
            frames=tuple(
                self._at(start, start + self._tokens)
                for start in range(self._prefix_slots, self._end, self._tokens)
            ),
            num_frames=self._num_frames,
            base=self._origin.base,
        )

    def load(self, contents: Contents) -> None:
        """Hold `contents` and nothing else."""
        contents_.check_window(contents, self._model)
        self.write_prefix(contents.prefix)
        self._origin = Origin(turned_back=contents.base)
        self._num_frames = contents.num_frames
        self._end = self._prefix_slots
        for frame in contents.frames:
            self._keys[:, :, self._end : self._end + self._tokens].copy_(frame.k_BHTD)
            self._values[:, :, self._end : self._end + self._tokens].copy_(frame.v_BHTD)
            self._end += self._tokens

    def _at(self, start: int, end: int) -> Tokens:
        return Tokens(
            k_BHTD=contents_.widened(self._keys[:, :, start:end]),
            v_BHTD=contents_.widened(self._values[:, :, start:end]),
        )

    def _turn(self) -> rope.Turn:
        """The turn of every valid slot."""
        num_kept = (self._end - self._prefix_slots) // self._tokens
        turns = [
            contents_.prefix_turn(
                self._prefix_slots - self._first,
                time=self._origin.prefix_time,
                split=self._model.rope_split,
            ),
            *map(self._frame_turn, range(self._num_frames - num_kept, self._num_frames)),
        ]
        return rope.Turn(
            torch.cat([turn.cos_TE for turn in turns]), torch.cat([turn.sin_TE for turn in turns])
        )

    def _frame_turn(self, number: int) -> rope.Turn:
        return contents_.frame_turn(self._model, number - self._origin.turned_back)
