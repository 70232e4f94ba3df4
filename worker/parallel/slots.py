"""Partial sums exchanged through shared-memory slots by tiles, a doorbell for each pair of ranks.

The CPU's twin of symmetric memory. A call sums one tensor over all ranks: a rank writes its part of
a tile into its slot, stamps it, rings its peers, and writes the next tile before it waits for
theirs. Why no rank ever reads what is half written or overwritten:

- A slot is written by its own rank alone. Call n uses slot n mod 2, and the tiles of one call share
  no byte, so within a call nothing is written twice.
- Tile i of a peer is read after as many of its bells as tiles up to i. A bell is a semaphore, so
  none is lost or merged; it is rung after the stamp was written, and the stamp after the floats.
- Call n + 2 overwrites call n. A rank gets there only when it has heard all of call n + 1 from
  every peer, and a peer rings the first tile of call n + 1 only after it has read all of call n.

Two slots a rank are therefore enough, and one would not do: a quick rank writes its first tile of
call n + 1 while a slow one still reads call n. The stamp tells call, tile and size, so a peer that
is a call or a tile off, or has another shape, is an error and never a wrong sum.
"""

import mmap
import os
import select
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.parallel.bell import Bell
from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError

MOST_TILES = 8
_SLOTS_PER_RANK = 2
_FLOAT_BYTES = 4
# Number of the call, of the tile from 0, and its floats; each stamp on a cache line of its own.
_STAMP = struct.Struct("<QII")
_STAMP_BYTES = 64
_STAMPS_BYTES = MOST_TILES * _STAMP_BYTES


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
        self._shapes: tuple[torch.Size, ...] = ()
        self._layout: tuple[tuple[tuple[Tensor, ...], ...], ...] = ()

    def sum_tiles(self, totals: Sequence[Tensor], write: Callable[[int, Tensor], object]) -> None:
        """Fill each of `totals` with the sum of its tile over all ranks, in the order of the ranks.

        `write(tile, own)` puts this rank's part of a tile into `own`, which has the shape of
        `totals[tile]`. It is called for the next tile before this one is waited for. Every rank
        gets the same bits.

        Raises: PeerLostError if a peer is late; PlanError if it is at another call or tile.
        """
        self._lay_out(totals)
        self._num_calls += 1
        parts = self._layout[self._parity()]
        last = len(totals) - 1
        self._send(0, parts[0], write)
        for tile in range(last):
            self._send(tile + 1, parts[tile + 1], write)
            self._receive(tile, parts[tile], totals[tile])
        self._receive(last, parts[last], totals[last])

    def close(self) -> None:
        """Give the pages of the slots back; call on every rank, at the same step."""
        self._slots = ((),) * _SLOTS_PER_RANK
        self._shapes, self._layout = (), ()
        # The memory file stays open for the next use, so its pages have to be punched out.
        self._memory.madvise(mmap.MADV_REMOVE)
        self._memory.close()

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        own = parts[self._place.rank]
        write(tile, own)
        self._stamp(tile, own.numel())
        self._ring()

    def _stamp(self, tile: int, num_floats: int) -> None:
        at = self._stamp_at(tile, self._place.rank)
        _STAMP.pack_into(self._memory, at, self._num_calls, tile, num_floats)

    def _ring(self) -> None:
        for bell in self._place.bells.values():
            os.eventfd_write(bell.rung, 1)

    def _receive(self, tile: int, parts: tuple[Tensor, ...], total: Tensor) -> None:
        for rank, bell in self._place.bells.items():
            if not self._polls[rank].poll(self._place.timeout_s * 1000):
                message = f"rank {rank} did not come to an all-reduce in {self._place.timeout_s} s"
                raise PeerLostError(message)
            os.eventfd_read(bell.heard)
            self._check(rank, tile, total.numel())
        if len(parts) == 1:
            total.copy_(parts[0])
            return
        torch.add(parts[0], parts[1], out=total)
        for part in parts[2:]:
            total.add_(part)

    def _check(self, rank: int, tile: int, num_floats: int) -> None:
        stamp = _STAMP.unpack_from(self._memory, self._stamp_at(tile, rank))
        expected = (self._num_calls, tile, num_floats)
        if stamp != expected:
            theirs, ours = (
                f"tile {number} of all-reduce {call} ({floats} floats)"
                for call, number, floats in (stamp, expected)
            )
            message = f"rank {rank} is at {theirs}, not {ours}"
            raise PlanError(message)

    def _lay_out(self, totals: Sequence[Tensor]) -> None:
        """Cut the slots into tiles; kept until the shapes change, for views cost time."""
        shapes = tuple(total.shape for total in totals)
        if shapes == self._shapes:
            return
        assert 1 <= len(shapes) <= MOST_TILES, f"{len(shapes)} tiles"
        sizes = [shape.numel() for shape in shapes]
        assert sum(sizes) <= self._num_floats, "the tensor is larger than a slot"
        self._layout = tuple(
            tuple(zip(*(_cut(slot, sizes, shapes) for slot in slots), strict=True))
            for slots in self._slots
        )
        self._shapes = shapes

    def _stamp_at(self, tile: int, rank: int) -> int:
        return self._at(self._parity(), rank) + tile * _STAMP_BYTES

    def _parity(self) -> int:
        return self._num_calls % _SLOTS_PER_RANK

    def _at(self, parity: int, rank: int) -> int:
        return (parity * self._place.num_ranks + rank) * self._slot_bytes

    def _mapped(self, parity: int, rank: int) -> Tensor:
        return torch.frombuffer(
            self._memory,
            dtype=torch.float32,
            count=self._num_floats,
            offset=self._at(parity, rank) + _STAMPS_BYTES,
        )


def _cut(slot: Tensor, sizes: Sequence[int], shapes: Sequence[torch.Size]) -> tuple[Tensor, ...]:
    """The tiles of one slot, each contiguous, one after another."""
    flat = torch.split(slot[: sum(sizes)], list(sizes))
    return tuple(tile.view(shape) for tile, shape in zip(flat, shapes, strict=True))


def _slot_bytes(num_floats: int) -> int:
    num_pages = -(-(_STAMPS_BYTES + num_floats * _FLOAT_BYTES) // mmap.PAGESIZE)
    return num_pages * mmap.PAGESIZE


def _polling(bell: Bell) -> select.poll:
    poll = select.poll()
    poll.register(bell.heard, select.POLLIN)
    return poll
