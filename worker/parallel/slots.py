"""Partial sums exchanged through shared-memory slots, with a doorbell for each pair of ranks.

The CPU's twin of symmetric memory. Two slots a rank are enough: a rank that has heard the doorbell
of call n + 1 knows that the peer has finished reading call n, so its slot of call n is free again.
"""

import mmap
import os
import select
import struct
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.parallel.bell import Bell
from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError

_SLOTS_PER_RANK = 2
_FLOAT_BYTES = 4
# The number of the call comes before the floats, on a cache line of its own.
_NUMBER = struct.Struct("<Q")
_NUMBER_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlace:
    """Where this rank finds the slots and its peers."""

    memory: int  # file descriptor shared by all ranks
    rank: int
    num_ranks: int
    bells: Mapping[int, Bell]  # one for each other rank
    timeout_s: float


def size_bytes(*, num_floats: int, num_ranks: int) -> int:
    """Bytes of all slots of all ranks, each slot starting on a page."""
    return _slot_bytes(num_floats) * _SLOTS_PER_RANK * num_ranks


class SlotExchange:
    """Sums of tensors of up to `num_floats` float32 elements over all ranks."""

    def __init__(self, place: SlotPlace, *, num_floats: int) -> None:
        """Map the slots. Raises: OSError if there is no memory for the mapping."""
        self._place = place
        self._num_floats = num_floats
        self._num_calls = 0
        self._slot_bytes = _slot_bytes(num_floats)
        self.num_bytes = size_bytes(num_floats=num_floats, num_ranks=place.num_ranks)
        self._memory = mmap.mmap(place.memory, self.num_bytes)
        self._slots = tuple(
            tuple(self._mapped(parity, rank) for rank in range(place.num_ranks))
            for parity in range(_SLOTS_PER_RANK)
        )
        self._polls = {rank: _polling(bell) for rank, bell in place.bells.items()}

    def sum_(self, partial: Tensor) -> Tensor:
        """Replace `partial` by its sum over all ranks, added in the order of the ranks.

        Returns: `partial`, the same bits on every rank.
        Raises: PeerLostError if a peer is late; PlanError if it is at another call.
        """
        flat = partial.view(-1)
        assert flat.numel() <= self._num_floats, "the tensor is larger than a slot"
        self._num_calls += 1
        parity = self._num_calls % _SLOTS_PER_RANK
        slots = tuple(slot[: flat.numel()] for slot in self._slots[parity])
        slots[self._place.rank].copy_(flat)
        self._ring(parity)
        self._wait(parity)
        if len(slots) == 1:
            return partial
        torch.add(slots[0], slots[1], out=flat)
        for slot in slots[2:]:
            flat.add_(slot)
        return partial

    def close(self) -> None:
        """Give the pages of the slots back; call on every rank, at the same step."""
        self._slots = ((),) * _SLOTS_PER_RANK
        # The memory file stays open for the next use, so its pages have to be punched out.
        self._memory.madvise(mmap.MADV_REMOVE)
        self._memory.close()

    def _ring(self, parity: int) -> None:
        at = self._at(parity, self._place.rank)
        _NUMBER.pack_into(self._memory, at, self._num_calls)
        for bell in self._place.bells.values():
            os.eventfd_write(bell.rung, 1)

    def _wait(self, parity: int) -> None:
        for rank, bell in self._place.bells.items():
            if not self._polls[rank].poll(self._place.timeout_s * 1000):
                message = f"rank {rank} did not come to an all-reduce in {self._place.timeout_s} s"
                raise PeerLostError(message)
            os.eventfd_read(bell.heard)
            (number,) = _NUMBER.unpack_from(self._memory, self._at(parity, rank))
            if number != self._num_calls:
                message = f"rank {rank} is at all-reduce {number}, not {self._num_calls}"
                raise PlanError(message)

    def _at(self, parity: int, rank: int) -> int:
        return (parity * self._place.num_ranks + rank) * self._slot_bytes

    def _mapped(self, parity: int, rank: int) -> Tensor:
        return torch.frombuffer(
            self._memory,
            dtype=torch.float32,
            count=self._num_floats,
            offset=self._at(parity, rank) + _NUMBER_BYTES,
        )


def _slot_bytes(num_floats: int) -> int:
    num_pages = -(-(_NUMBER_BYTES + num_floats * _FLOAT_BYTES) // mmap.PAGESIZE)
    return num_pages * mmap.PAGESIZE


def _polling(bell: Bell) -> select.poll:
    poll = select.poll()
    poll.register(bell.heard, select.POLLIN)
    return poll
