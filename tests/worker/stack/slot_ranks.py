"""Ranks that share slots and doorbells: as threads of one process, and unreliable on demand."""

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from worker.parallel import bell, slots
from worker.parallel.bell import Bell
from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError
from worker.parallel.slots import SlotExchange, SlotPlace

NUM_FLOATS = 5000


@contextlib.contextmanager
def places(num_ranks: int, *, timeout_s: float = 20.0) -> Iterator[list[SlotPlace]]:
    """What each of `num_ranks` needs, with fresh memory and doorbells."""
    memory = os.memfd_create("test-slots")
    os.ftruncate(memory, slots.size_bytes(num_floats=NUM_FLOATS, num_ranks=num_ranks))
    bells: list[dict[int, Bell]] = [{} for _ in range(num_ranks)]
    for low in range(num_ranks):
        for high in range(low + 1, num_ranks):
            bells[low][high], bells[high][low] = bell.pair()
    try:
        yield [
            SlotPlace(
                memory=memory,
                rank=rank,
                num_ranks=num_ranks,
                bells=bells[rank],
                timeout_s=timeout_s,
            )
            for rank in range(num_ranks)
        ]
    finally:
        for rung in {own.rung for ends in bells for own in ends.values()}:
            os.close(rung)
        os.close(memory)


@dataclass(frozen=True, slots=True)
class Failed:
    """How one rank ended."""

    rank: int
    error: PlanError | PeerLostError


def in_threads(run: Callable[[SlotPlace], None], of: list[SlotPlace]) -> list[Failed]:
    """Run every rank to its end; the errors of those that noticed something, by rank."""
    failed: list[Failed] = []

    def guarded(place: SlotPlace) -> None:
        try:
            run(place)
        except (PlanError, PeerLostError) as error:
            failed.append(Failed(place.rank, error))

    threads = [threading.Thread(target=guarded, args=(place,)) for place in of]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(failed, key=lambda one: one.rank)


class Preempted(SlotExchange):
    """Loses the processor for up to a millisecond wherever that could matter to a peer."""

    def __init__(self, place: SlotPlace, *, num_floats: int, seed: int) -> None:
        super().__init__(place, num_floats=num_floats)
        self._random = random.Random(f"{seed} {place.rank}")

    def pause(self) -> None:
        if self._random.random() < 0.3:
            time.sleep(self._random.random() / 1000)

    def _stamp(self, tile: int, num_floats: int) -> None:
        self.pause()
        super()._stamp(tile, num_floats)

    def _ring(self) -> None:
        self.pause()
        super()._ring()
        self.pause()

    def _check(self, rank: int, tile: int, num_floats: int) -> None:
        self.pause()
        super()._check(rank, tile, num_floats)
        self.pause()


class RingsFirst(Preempted):
    """A fault: the tile is stamped and rung for before it is written."""

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        own = parts[self._place.rank]
        self._stamp(tile, own.numel())
        self._ring()
        time.sleep(0.001)
        write(tile, own)


class StampsLast(Preempted):
    """A fault: the doorbell is rung before the stamp is written."""

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        own = parts[self._place.rank]
        write(tile, own)
        self._ring()
        time.sleep(0.001)
        self._stamp(tile, own.numel())


class OneSlot(Preempted):
    """A fault: the next call is written over the one that a slow peer still reads."""

    def _parity(self) -> int:
        return 0
