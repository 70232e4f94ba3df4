"""Sums through shared-memory slots."""

import os
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from worker.parallel import bell, slots
from worker.parallel.bell import Bell
from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError
from worker.parallel.slots import SlotExchange, SlotPlace

_NUM_FLOATS = 5000


def _places(num_ranks: int, *, timeout_s: float = 20.0) -> Iterator[list[SlotPlace]]:
    memory = os.memfd_create("test-slots")
    os.ftruncate(memory, slots.size_bytes(num_floats=_NUM_FLOATS, num_ranks=num_ranks))
    bells: list[dict[int, Bell]] = [{} for _ in range(num_ranks)]
    for low in range(num_ranks):
        for high in range(low + 1, num_ranks):
            bells[low][high], bells[high][low] = bell.pair()
    yield [
        SlotPlace(
            memory=memory, rank=rank, num_ranks=num_ranks, bells=bells[rank], timeout_s=timeout_s
        )
        for rank in range(num_ranks)
    ]
    for rung in {own.rung for ends in bells for own in ends.values()}:
        os.close(rung)
    os.close(memory)


@pytest.fixture
def two() -> Iterator[list[SlotPlace]]:
    yield from _places(2)


@pytest.fixture(params=[1, 2, 3])
def some(request: pytest.FixtureRequest) -> Iterator[list[SlotPlace]]:
    yield from _places(request.param)


def test_every_rank_gets_the_same_sum_call_after_call(some: list[SlotPlace]) -> None:
    """Two slots a rank have to do: a thousand calls of varying size, no barrier between them."""
    sizes = [1 + (7919 * call) % _NUM_FLOATS for call in range(1000)]
    wrong: list[tuple[int, int]] = []

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=_NUM_FLOATS)
        for call, size in enumerate(sizes):
            total = exchange.sum_(torch.full((size,), float(call + place.rank)))
            expected = sum(call + rank for rank in range(place.num_ranks))
            if not torch.equal(total, torch.full((size,), float(expected))):
                wrong.append((call, place.rank))

    _in_threads(run, some)
    assert wrong == []


def test_two_ranks_get_the_bits_of_a_plain_addition(two: list[SlotPlace]) -> None:
    """So that a flip between the variants does not steer the video elsewhere."""
    parts = [torch.randn(64, generator=torch.Generator().manual_seed(rank)) for rank in (0, 1)]
    totals: dict[int, Tensor] = {}

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=_NUM_FLOATS)
        totals[place.rank] = exchange.sum_(parts[place.rank].clone())

    _in_threads(run, two)
    assert torch.equal(totals[0], parts[0] + parts[1])
    assert torch.equal(totals[1], totals[0])


def test_a_peer_at_another_call_is_a_disagreement(two: list[SlotPlace]) -> None:
    """Otherwise the sums of two different blocks would be added in silence."""
    errors: list[str] = []

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=_NUM_FLOATS)
        exchange._num_calls = 4 * place.rank
        try:
            exchange.sum_(torch.ones(3))
        except PlanError as error:
            errors.append(str(error))

    _in_threads(run, two)
    assert sorted(errors) == [
        "rank 0 is at all-reduce 1, not 5",
        "rank 1 is at all-reduce 5, not 1",
    ]


def test_a_peer_that_does_not_come_is_given_up() -> None:
    """The last resort: the supervisor notices a death and the watchdog a hang before."""
    for places in _places(2, timeout_s=0.01):
        exchange = SlotExchange(places[0], num_floats=_NUM_FLOATS)
        with pytest.raises(PeerLostError, match="rank 1 did not come"):
            exchange.sum_(torch.ones(3))


def _in_threads(run: object, places: list[SlotPlace]) -> None:
    assert callable(run)
    threads = [threading.Thread(target=run, args=(place,)) for place in places]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
