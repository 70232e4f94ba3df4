"""The ring whose keys are turned, and rounded to FP8 if asked, once: when they are written.

Nothing is copied to advance the window or to read it. The prefix stands right-aligned in front of
the ring, so that the valid slots are one contiguous slice whatever its length. The raw prefix is
kept beside in the element of a cache without FP8: turned anew from there, its FP8 numbers are
never rounded twice, and it is whole after a flip back.
"""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is below

from dataclasses import replace

import torch
from torch import Tensor

from worker.cache import contents as contents_
from worker.cache.contents import Contents, Origin, Tokens
from worker.cache.ring import RingCursor
from worker.cache.scales import CacheScales, ClampCounts
from worker.config import ModelConfig
from worker.ops import attention, fp8, rope
from worker.ops.pre_attention import Heads, Place, PreAttention, unfused


# B = blocks, H = heads of this rank, T = tokens of a frame, S = slots, D = head width
class WriteTimeCache:
    """Keys and values of one session on one rank, ready for attention as they lie."""

    def __init__(
        self,
        model: ModelConfig,
        *,
        num_heads: int,
        dtype: torch.dtype = torch.bfloat16,
        scales: CacheScales | None = None,
        pre_attention: PreAttention = unfused,
    ) -> None:
        """Allocate for the longest prefix and a full window, in FP8 if `scales` are given."""
        self._model = model
        self._tokens = model.tokens_per_frame
        self._prefix_slots = model.first_forward_bounds[1]
        self._first = self._end = self._prefix_slots
        self._num_frames = 0
        self._first_number = 0  # of the frame that took the first slot
        self._origin = Origin()
        self._scales = scales
        self._pre_attention = pre_attention
        slots = self._prefix_slots + model.window * self._tokens
        shape = (model.num_blocks, num_heads, slots, model.head_width)
        # Zeroed, not empty: a NaN in a slot that was never written must not leak through a mask.
        if scales is None:
            self._keys = torch.zeros(shape, dtype=dtype)
            self._values = torch.zeros(shape, dtype=dtype)
        else:
            self._keys = torch.zeros(shape, dtype=torch.uint8).view(fp8.E4M3)
            # FP8 kernels take values column-major, or make them so by a copy in every call.
            across = (*shape[:2], shape[3], shape[2])
            self._values = torch.zeros(across, dtype=torch.uint8).view(fp8.E4M3).transpose(2, 3)
        masters = (*shape[:2], self._prefix_slots, model.head_width)
        self._prefix_keys = torch.zeros(masters, dtype=dtype)
        self._prefix_values = torch.zeros(masters, dtype=dtype)
        self.clamps = ClampCounts(
            num_blocks=model.num_blocks, num_heads=num_heads, device=self._keys.device
        )
        # One address each for the whole session, so that a recorded graph may point at them.
        self._at_T = torch.zeros(self._tokens, dtype=torch.int64)
        turn = contents_.frame_turn(model, 0)
        self._turn = rope.Turn(turn.cos_TE.clone(), turn.sin_TE.clone())

    @property
    def origin(self) -> Origin:
        """Where the stored angles are measured from."""
        return self._origin

    def write_prefix(self, prefix: Tokens) -> None:
        """Fill the prefix of an empty cache and keep it raw beside."""
        self._first = self._prefix_slots - prefix.k_BHTD.shape[2]
        self._prefix_keys[:, :, self._first :].copy_(prefix.k_BHTD)
        self._prefix_values[:, :, self._first :].copy_(prefix.v_BHTD)
        self._store_prefix_keys()
        values = self._prefix_values[:, :, self._first :]
        self._store(self._values, self._first, values, kind=1)

    def open_frame(self, cursor: RingCursor) -> None:
        """Begin the frame of `cursor`: its slots are the oldest frame's, once the ring is full."""
        contents_.check_base(self._origin, cursor)
        start = self._slot_of(cursor.num_frames)
        self._at_T.copy_(torch.arange(start, start + self._tokens))
        turn = contents_.frame_turn(self._model, cursor.num_frames - self._origin.turned_back)
        self._turn.cos_TE.copy_(turn.cos_TE)
        self._turn.sin_TE.copy_(turn.sin_TE)
        self._end = max(self._end, start + self._tokens)
        self._num_frames = cursor.num_frames + 1

    def prepare(self, block: int, heads: Heads) -> Tensor:
        """Turn, round and write the new tokens of one block; returns their turned queries."""
        return self._pre_attention(heads, self._turn, self._place(block))

    def attend(self, block: int, q_HTD: Tensor) -> Tensor:
        """Attention over the slots as they lie."""
        keys, values = self.read(block)
        if self._scales is None:
            return attention.attend(q_HTD, keys, values)
        return fp8.attend(q_HTD, keys, values, self._scales.of_block(block))

    def read(self, block: int) -> tuple[Tensor, Tensor]:
        """k_HSD and v_HSD, views of all valid slots, in no order that means anything."""
        valid = slice(self._first, self._end)
        return self._keys[block, :, valid], self._values[block, :, valid]

    def turn_window(self, shift: int) -> None:
        """Take the kept frames back by `shift`; every byte but their time channels stays.

        An FP8 key is rounded again here, once in its life: `reset_period` is above the window. Its
        scale cancels, so units are turned as they lie.
        """
        channels = self._model.rope_split[0]
        window = self._keys[:, :, self._prefix_slots : self._end, :channels]
        turned = rope.rotated(window.float(), rope.shift_turn(shift, split=self._model.rope_split))
        if self._scales is None:
            window.copy_(turned)
        else:
            units, num_clamped = fp8.rounded_units(turned)
            window.copy_(units)
            self.clamps.on_device_2BH[0].add_(num_clamped)
        self._origin = replace(self._origin, turned_back=self._origin.turned_back + shift)

    def turn_prefix(self, shift: int) -> None:
        """Move the prefix on by `shift`: made anew from its raw keys, so nothing adds up."""
        self._origin = replace(self._origin, prefix_time=self._origin.prefix_time + shift)
        self._store_prefix_keys()

    def use(self, pre_attention: PreAttention) -> None:
        """Take in new tokens by `pre_attention` from now on; both forms write the same slots."""
        self._pre_attention = pre_attention

    @property
    def num_bytes(self) -> int:
        """Allocated for the slots and the raw prefix."""
        held = (self._keys, self._values, self._prefix_keys, self._prefix_values)
        return sum(tensor.nbytes for tensor in held)

    def contents(self) -> Contents:
        """What attention can see, turned back to raw and widened to float32."""
        numbers = range(self._num_frames - self._num_kept, self._num_frames)
        return Contents(
            prefix=Tokens(
                k_BHTD=contents_.widened(self._prefix_keys[:, :, self._first :]),
                v_BHTD=contents_.widened(self._prefix_values[:, :, self._first :]),
            ),
            frames=tuple(self._frame(number) for number in numbers),
            num_frames=self._num_frames,
            base=self._origin.base,
        )

    def load(self, contents: Contents) -> None:
        """Hold `contents` and nothing else; slots and angles as if it had been written here."""
        contents_.check_window(contents, self._model)
        self._end = self._prefix_slots
        self._origin = Origin(turned_back=contents.base)
        self.write_prefix(contents.prefix)
        self._num_frames = contents.num_frames
        # Counted from here, so that the ring fills without a gap however few frames are given.
        self._first_number = contents.num_frames - len(contents.frames)
        for number, frame in enumerate(contents.frames, start=self._first_number):
            start = self._slot_of(number)
            turn = contents_.frame_turn(self._model, number - self._origin.turned_back)
            self._store(self._keys, start, rope.rotated(frame.k_BHTD, turn), kind=0)
            self._store(self._values, start, frame.v_BHTD, kind=1)
            self._end = max(self._end, start + self._tokens)

    @property
    def _num_kept(self) -> int:
        return (self._end - self._prefix_slots) // self._tokens

    def _slot_of(self, number: int) -> int:
        slot = (number - self._first_number) % self._model.window
        return self._prefix_slots + slot * self._tokens

    def _place(self, block: int) -> Place:
        return Place(
            keys_HSD=self._keys[block],
            values_HSD=self._values[block],
            at_T=self._at_T,
            scales=None if self._scales is None else self._scales.of_block(block),
            clamped_2H=self.clamps.on_device_2BH[:, block],
        )

    def _store_prefix_keys(self) -> None:
        keys = self._prefix_keys[:, :, self._first :]
        turn = contents_.prefix_turn(
            keys.shape[2], time=self._origin.prefix_time, split=self._model.rope_split
        )
        self._store(self._keys, self._first, rope.rotated(keys, turn), kind=0)

    def _store(self, slots: Tensor, start: int, new_BHTD: Tensor, *, kind: int) -> None:
        """Write all blocks at once; `kind` is 0 for keys and 1 for values."""
        into = slots[:, :, start : start + new_BHTD.shape[2]]
        if self._scales is None:
            into.copy_(new_BHTD)
            return
        scale_BH = (self._scales.key_BH, self._scales.value_BH)[kind]
        units, num_clamped = fp8.rounded(new_BHTD, scale_BH)
        into.copy_(units)
        self.clamps.on_device_2BH[kind].add_(num_clamped)

    def _frame(self, number: int) -> Tokens:
        start = self._slot_of(number)
        valid = slice(start, start + self._tokens)
        keys, values = self._keys[:, :, valid], self._values[:, :, valid]
        if self._scales is None:
            keys, values = contents_.widened(keys), contents_.widened(values)
        else:
            keys = fp8.widened(keys, self._scales.key_BH)
            values = fp8.widened(values, self._scales.value_BH)
        turn = contents_.frame_turn(self._model, number - self._origin.turned_back)
        return Tokens(k_BHTD=rope.rotated(keys, contents_.undone(turn)), v_BHTD=values)
