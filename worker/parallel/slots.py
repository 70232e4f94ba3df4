"""Partial sums exchanged through shared-memory slots, with a doorbell of one byte for each peer.

The CPU's twin of symmetric memory. Two slots a rank are enough: a rank that has heard the doorbell
of call n + 1 knows that the peer has finished reading call n, so its slot of call n is free again.
"""

import mmap
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError

_SLOTS_PER_RANK = 2
_FLOAT_BYTES = 4
_PAGE_BYTES = mmap.PAGESIZE


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotPlace:
    """Where this rank finds the slots and its peers."""

    memory: int  # file descriptor shared by all ranks
    rank: int
    num_ranks: int
    bells: Mapping[int, socket.socket]  # one for each other rank


def size_bytes(*, num_floats: int, num_ranks: int) -> int:
    """Bytes of all slots of all ranks, each slot starting on a page."""
    return _slot_bytes(num_floats) * _SLOTS_PER_RANK * num_ranks


class SlotExchange:
    """Sums of tensors of up to `num_floats` float32 elements over all ranks."""

    def __init__(self, place: SlotPlace, *, num_floats: int) -> None:
        """Map the slots. Raises: OSError if there is no memory for the mapping."""
        self._rank = place.rank
        self._bells = tuple(place.bells[peer] for peer in sorted(place.bells))
        self._num_floats = num_floats
        self._num_calls = 0
        self.num_bytes = size_bytes(num_floats=num_floats, num_ranks=place.num_ranks)
        self._memory = mmap.mmap(place.memory, self.num_bytes)
        self._slots = _mapped(self._memory, place.num_ranks, num_floats)

    def sum_(self, partial: Tensor) -> Tensor:
        """Replace `partial` by its sum over all ranks, added in the order of the ranks.

        Returns: `partial`, the same bits on every rank.
        Raises: PeerLostError if a peer has died or is late; PlanError if it is at another call.
        """
        flat = partial.view(-1)
        assert flat.numel() <= self._num_floats, "the tensor is larger than a slot"
        slots = self._slots[self._num_calls % _SLOTS_PER_RANK]
        slots[self._rank][: flat.numel()].copy_(flat)
        self._ring_and_wait()
        if len(slots) == 1:
            return partial
        torch.add(slots[0][: flat.numel()], slots[1][: flat.numel()], out=flat)
        for slot in slots[2:]:
            flat.add_(slot[: flat.numel()])
        return partial

    def close(self) -> None:
        """Give the pages of the slots back; call on every rank, at the same step."""
        self._slots = ((),) * _SLOTS_PER_RANK
        # The memory file stays open for the next use, so its pages have to be punched out.
        self._memory.madvise(mmap.MADV_REMOVE)
        self._memory.close()

    def _ring_and_wait(self) -> None:
        number = self._num_calls % 256
        self._num_calls += 1
        try:
            for bell in self._bells:
                bell.send(bytes((number,)))
            heard = [bell.recv(1) for bell in self._bells]
        except OSError as error:
            message = f"a peer does not answer the doorbell: {error}"
            raise PeerLostError(message) from error
        if b"" in heard:
            message = "a peer has closed its doorbell"
            raise PeerLostError(message)
        if any(byte[0] != number for byte in heard):
            message = f"a peer is at another all-reduce than {number} (modulo 256)"
            raise PlanError(message)


def _slot_bytes(num_floats: int) -> int:
    return -(-num_floats * _FLOAT_BYTES // _PAGE_BYTES) * _PAGE_BYTES


def _mapped(memory: mmap.mmap, num_ranks: int, num_floats: int) -> tuple[tuple[Tensor, ...], ...]:
    slot_bytes = _slot_bytes(num_floats)
    return tuple(
        tuple(
            torch.frombuffer(
                memory,
                dtype=torch.float32,
                count=num_floats,
                offset=(parity * num_ranks + rank) * slot_bytes,
            )
            for rank in range(num_ranks)
        )
        for parity in range(_SLOTS_PER_RANK)
    )
