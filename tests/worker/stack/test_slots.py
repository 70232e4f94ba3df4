"""Sums through shared-memory slots, tile by tile."""

import threading
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.worker.stack import slot_ranks
from tests.worker.stack.slot_ranks import (
    NUM_FLOATS,
    Failed,
    OneSlot,
    Preempted,
    RingsFirst,
    StampsLast,
)
from worker.parallel import slots
from worker.parallel.channel import PeerLostError
from worker.parallel.plan import PlanError
from worker.parallel.slots import SlotExchange, SlotPlace


def _sum(exchange: SlotExchange, parts: list[Tensor]) -> list[Tensor]:
    """The sums of the tiles `parts` of this rank; each is written in two halves."""
    totals = [torch.empty_like(part) for part in parts]

    def write(tile: int, own: Tensor) -> None:
        half = own.numel() // 2
        own.view(-1)[:half].copy_(parts[tile].view(-1)[:half])
        if isinstance(exchange, Preempted):
            exchange.pause()
        own.view(-1)[half:].copy_(parts[tile].view(-1)[half:])

    exchange.sum_tiles(totals, write)
    return totals


def _constants(call: int, place: SlotPlace, sizes: list[int]) -> list[Tensor]:
    """Tiles that tell call, tile and rank from each other, exact in float32."""
    return [
        torch.full((size,), float(100 * call + 10 * tile + place.rank))
        for tile, size in enumerate(sizes)
    ]


def _wrong_sums(
    of: list[SlotPlace],
    sizes_by_call: list[list[int]],
    exchange_of: Callable[[SlotPlace], SlotExchange],
) -> tuple[set[tuple[int, int, int]], list[Failed]]:
    """(call, tile, rank) of every wrong sum, and the ranks that ended in an error."""
    wrong: set[tuple[int, int, int]] = set()

    def run(place: SlotPlace) -> None:
        exchange = exchange_of(place)
        for call, sizes in enumerate(sizes_by_call):
            totals = _sum(exchange, _constants(call, place, sizes))
            for tile, total in enumerate(totals):
                expected = sum(100 * call + 10 * tile + rank for rank in range(place.num_ranks))
                if not torch.equal(total, torch.full_like(total, float(expected))):
                    wrong.add((call, tile, place.rank))

    return wrong, slot_ranks.in_threads(run, of)


def _sizes(call: int) -> list[int]:
    """One to eight tiles of odd and even sizes, some of a single float, in no rhythm."""
    num_tiles = 1 + (7 * call) % slots.MOST_TILES
    most = NUM_FLOATS // num_tiles
    return [1 + (7919 * (call + 13 * tile)) % most for tile in range(num_tiles)]


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
def test_every_rank_gets_the_same_sum_call_after_call(num_ranks: int) -> None:
    """Two slots a rank have to do: calls of varying size and tiles, no barrier between them."""
    with slot_ranks.places(num_ranks) as of:
        found = _wrong_sums(
            of,
            [_sizes(call) for call in range(500)],
            lambda place: SlotExchange(place, num_floats=NUM_FLOATS),
        )
    assert found == (set(), [])


@settings(max_examples=12)
@given(
    num_ranks=st.integers(2, 4),
    seed=st.integers(0, 2**32),
    sizes_by_call=st.lists(
        st.lists(st.integers(1, 600), min_size=1, max_size=slots.MOST_TILES),
        min_size=1,
        max_size=8,
    ),
)
def test_ranks_that_lose_the_processor_anywhere_get_no_wrong_sum(
    num_ranks: int, seed: int, sizes_by_call: list[list[int]]
) -> None:
    """Between the halves of a tile, before the stamp, around the doorbell, before the reading."""
    with slot_ranks.places(num_ranks) as of:
        found = _wrong_sums(
            of,
            sizes_by_call,
            lambda place: Preempted(place, num_floats=NUM_FLOATS, seed=seed),
        )
    assert found == (set(), [])


@pytest.mark.parametrize("broken", [RingsFirst, StampsLast, OneSlot])
def test_a_breach_of_the_order_is_seen_by_the_test_above(broken: type[Preempted]) -> None:
    """Negative controls: a test that passes with a broken protocol would prove nothing."""
    with slot_ranks.places(2, timeout_s=0.2) as of:
        wrong, failed = _wrong_sums(
            of,
            [[300, 300]] * 200,
            lambda place: broken(place, num_floats=NUM_FLOATS, seed=1),
        )
    assert wrong or failed
    assert wrong or broken is not RingsFirst, "only the sum itself can show this one"


def test_the_ranks_are_added_in_their_order() -> None:
    """So every rank has the same bits, and with two those of a plain addition."""
    parts = [torch.randn(4, 16, generator=torch.Generator().manual_seed(r)) for r in range(4)]
    for num_ranks in (2, 3, 4):
        totals: dict[int, Tensor] = {}

        def run(place: SlotPlace, totals: dict[int, Tensor] = totals) -> None:
            exchange = SlotExchange(place, num_floats=NUM_FLOATS)
            tiles = list(parts[place.rank].unbind())
            totals[place.rank] = torch.stack(_sum(exchange, tiles))

        with slot_ranks.places(num_ranks) as of:
            assert slot_ranks.in_threads(run, of) == []
        expected = parts[0].clone()
        for part in parts[1:num_ranks]:
            expected += part
        assert all(torch.equal(totals[rank], expected) for rank in range(num_ranks))


def test_the_next_tile_is_written_before_this_one_is_waited_for() -> None:
    """Otherwise nothing travels while something is computed, and tiles only cost time."""
    with slot_ranks.places(2) as of:
        lone = SlotExchange(of[0], num_floats=NUM_FLOATS)
        peer = SlotExchange(of[1], num_floats=NUM_FLOATS)
        begun: list[int] = []
        has_two = threading.Event()

        def write(tile: int, own: Tensor) -> None:
            own.fill_(1.0)
            begun.append(tile)
            if tile == 1:
                has_two.set()

        def run(place: SlotPlace) -> None:
            if place.rank == 0:
                lone.sum_tiles([torch.empty(2)] * 3, write)
            else:
                assert has_two.wait(20), f"tiles written while the peer sends none: {begun}"
                _sum(peer, [torch.ones(2)] * 3)

        assert slot_ranks.in_threads(run, of) == []
    assert begun == [0, 1, 2]


def test_a_peer_at_another_call_is_a_disagreement() -> None:
    """Otherwise the sums of two different blocks would be added in silence."""

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=NUM_FLOATS)
        exchange._num_calls = 4 * place.rank
        _sum(exchange, [torch.ones(3)])

    with slot_ranks.places(2) as of:
        failed = slot_ranks.in_threads(run, of)
    assert [str(one.error) for one in failed] == [
        "rank 1 is at tile 0 of all-reduce 5 (3 floats), not tile 0 of all-reduce 1 (3 floats)"
        if one.rank == 0
        else "rank 0 is at tile 0 of all-reduce 1 (3 floats), not tile 0 of all-reduce 5 (3 floats)"
        for one in failed
    ]
    assert len(failed) == 2


class _SkipsATile(SlotExchange):
    """One tile ahead: its first bell is that of its second tile."""

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        if (self._num_calls, tile) != (2, 0):
            super()._send(tile, parts, write)


class _RingsTwice(SlotExchange):
    """Rings for a tile that it has not written yet, and then waits."""

    may_go_on: threading.Event

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        if (self._num_calls, tile) == (2, 1):
            self._ring()
            assert self.may_go_on.wait(20), "the peer has not noticed"
        super()._send(tile, parts, write)


class _LosesABell(SlotExchange):
    """One tile behind: its last bell of a call is not heard before the next call."""

    def _send(
        self, tile: int, parts: tuple[Tensor, ...], write: Callable[[int, Tensor], object]
    ) -> None:
        if (self._num_calls, tile) == (2, 2):
            write(tile, parts[self._place.rank])
        else:
            super()._send(tile, parts, write)


@pytest.mark.parametrize(
    ("off", "kind"),
    [(_SkipsATile, PlanError), (_RingsTwice, PlanError), (_LosesABell, PlanError)],
)
def test_a_peer_a_tile_off_is_noticed_and_its_sum_is_not_given(
    off: type[SlotExchange], kind: type[Exception]
) -> None:
    """In a call where a slot of the right call would be found as well, by its stamp alone."""
    sums: list[list[float]] = []
    has_noticed = threading.Event()

    def run(place: SlotPlace) -> None:
        try:
            exchange = (off if place.rank else SlotExchange)(place, num_floats=NUM_FLOATS)
            if isinstance(exchange, _RingsTwice):
                exchange.may_go_on = has_noticed
            for _ in range(4):
                totals = _sum(exchange, [torch.full((3,), float(tile)) for tile in range(3)])
                if place.rank == 0:
                    sums.append([float(total[0]) for total in totals])
        finally:
            if place.rank == 0:
                has_noticed.set()

    with slot_ranks.places(2, timeout_s=0.5) as of:
        failed = slot_ranks.in_threads(run, of)
    assert isinstance(failed[0].error, kind)
    assert failed[0].rank == 0
    assert sums == [[0.0, 2.0, 4.0]]


@pytest.mark.parametrize("other", [[3, 3], [6], [3, 4], [4, 2], [1, 2, 3]])
def test_a_peer_with_other_tiles_is_a_disagreement(other: list[int]) -> None:
    """Another number of tiles or another shape: on one rank at least, and no hang on the rest."""
    mine = [2, 4]

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=NUM_FLOATS)
        _sum(exchange, [torch.ones(size) for size in (other if place.rank else mine)])

    with slot_ranks.places(2, timeout_s=0.5) as of:
        failed = slot_ranks.in_threads(run, of)
    assert any(isinstance(one.error, PlanError) for one in failed)


def test_a_peer_that_does_not_come_is_given_up() -> None:
    """The last resort: the supervisor notices a death and the watchdog a hang before."""
    with slot_ranks.places(2, timeout_s=0.01) as of:
        exchange = SlotExchange(of[0], num_floats=NUM_FLOATS)
        with pytest.raises(PeerLostError, match="rank 1 did not come"):
            _sum(exchange, [torch.ones(3)])


def test_a_peer_that_stops_between_two_tiles_is_given_up() -> None:
    """Its first tile was summed; the call has no result all the same."""

    def run(place: SlotPlace) -> None:
        exchange = SlotExchange(place, num_floats=NUM_FLOATS)
        if place.rank == 0:
            _sum(exchange, [torch.ones(3)] * 2)
            return
        exchange._lay_out([torch.ones(3)] * 2)
        exchange._num_calls = 1
        exchange._send(0, exchange._layout[1][0], lambda _, own: own.fill_(1.0))

    with slot_ranks.places(2, timeout_s=0.2) as of:
        failed = slot_ranks.in_threads(run, of)
    assert [(one.rank, type(one.error)) for one in failed] == [(0, PeerLostError)]
