"""The output product of a block and its sum over the ranks, by every variant of the flag."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.worker.stack import product_ranks, slot_ranks
from worker import config
from worker.ops import reduce
from worker.ops.reduce import AllReduce, FusedSteadyReduce, ReducePlace, SelfTestError
from worker.parallel import board
from worker.parallel.slots import SlotPlace

ROOT = Path(__file__).resolve().parents[3]
SLOTTED = ("fused_steady", "fused_all", "fused_small_tiles")


def _on_ranks(num_ranks: int, run: Callable[[ReducePlace], None]) -> None:
    """Run every rank in a thread; none of them may fail."""
    lines = board.create(num_ranks)
    # 4,992 floats fit the slots of the tests: 26 tokens of 192 columns.
    model = replace(config.TINY_MODEL, first_forward_bounds=(1, 26))
    worker = replace(config.tiny(model), num_ranks=num_ranks, small_tiles_floor_s=0.001)

    def guarded(slots: SlotPlace) -> None:
        run(ReducePlace(line=board.Line(lines, slots.rank), slots=slots, config=worker))

    try:
        with slot_ranks.places(num_ranks) as of:
            assert slot_ranks.in_threads(guarded, of) == []
    finally:
        os.close(lines)


def _integers(shape: tuple[int, int], *, seed: int) -> Tensor:
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).float()


@settings(max_examples=25)
@given(
    num_ranks=st.sampled_from([1, 2, 3, 4]),
    variant=st.sampled_from(SLOTTED),
    shapes=st.lists(
        st.tuples(st.integers(1, 13), st.integers(1, 192), st.integers(1, 40)),
        min_size=1,
        max_size=4,
    ),
)
def test_products_of_any_shape_are_those_of_integers(
    num_ranks: int, variant: str, shapes: list[tuple[int, int, int]]
) -> None:
    """Integers add up exactly in any order, so every bit is known: fewer columns than tiles too."""
    totals: dict[tuple[int, int], Tensor] = {}

    def run(place: ReducePlace) -> None:
        rank = place.slots.rank
        subject = reduce.build(variant, place)
        for number, (num_tokens, width, num_inputs) in enumerate(shapes):
            totals[rank, number] = subject.product(
                _integers((num_tokens, num_inputs), seed=10 * rank),
                _integers((width, num_inputs), seed=10 * rank + 1),
                is_first_forward=False,
            )

    _on_ranks(num_ranks, run)
    for number, (num_tokens, width, num_inputs) in enumerate(shapes):
        expected = torch.zeros(num_tokens, width, dtype=torch.int64)
        for rank in range(num_ranks):
            joined = _integers((num_tokens, num_inputs), seed=10 * rank).long()
            expected += joined @ _integers((width, num_inputs), seed=10 * rank + 1).long().t()
        for rank in range(num_ranks):
            assert torch.equal(totals[rank, number], expected.float())


@pytest.mark.parametrize("variant", ["fused_steady", "fused_all"])
def test_a_product_is_not_changed_by_the_next(variant: str) -> None:
    """What comes back is the caller's: neither a view of a slot nor of a kept buffer."""
    kept: dict[int, list[float]] = {}

    def run(place: ReducePlace) -> None:
        subject = reduce.build(variant, place)
        takes_first = variant == "fused_all"  # a first forward of the other takes gloo
        totals = [
            subject.product(
                torch.full((3, 2), float(number)), torch.ones(5, 2), is_first_forward=takes_first
            )
            for number in range(4)
        ]
        kept[place.slots.rank] = [float(total.max()) for total in totals]

    _on_ranks(2, run)
    assert kept == {rank: [0.0, 4.0, 8.0, 12.0] for rank in (0, 1)}


def test_the_product_counts_as_time_of_the_reduce_once_a_step() -> None:
    """A fused kernel cannot tell product from sum, so no variant does."""
    spent: dict[int, list[float]] = {}

    def run(place: ReducePlace) -> None:
        subject = FusedSteadyReduce(place)
        subject.product(torch.ones(13, 480), torch.ones(192, 480), is_first_forward=False)
        spent[place.slots.rank] = [subject.hold_step(1e9), subject.hold_step(1e9)]

    _on_ranks(2, run)
    assert all(first > 0.0 and second == 0.0 for first, second in spent.values())


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("variant", SLOTTED)
def test_the_self_test_passes_on_a_sound_variant(variant: str, num_ranks: int) -> None:
    """It runs in every flip, so it has to pass on every number of ranks."""

    def run(place: ReducePlace) -> None:
        reduce.self_test(reduce.build(variant, place), place)

    _on_ranks(num_ranks, run)


class _SwapsTiles(FusedSteadyReduce):
    """A fault: the columns come back in another order."""

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:  # noqa: N803 - as the base
        total = super()._product(joined_TK, weight_DK, is_first_forward=is_first_forward)
        return total.roll(total.shape[1] // 2, dims=1)


class _WrongInTheSecondSlot(FusedSteadyReduce):
    """A fault: the first of the two slots is sound."""

    num_products = 0

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:  # noqa: N803 - as the base
        total = super()._product(joined_TK, weight_DK, is_first_forward=is_first_forward)
        self.num_products += 1
        if self.num_products % 2 == 0:
            total[-1, -1] += 1
        return total


class _LeavesOutItsOwn(FusedSteadyReduce):
    """A fault: one rank's part is not in the sum."""

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:  # noqa: N803 - as the base
        total = super()._product(joined_TK, weight_DK, is_first_forward=is_first_forward)
        return total - torch.nn.functional.linear(joined_TK, weight_DK)


@pytest.mark.parametrize("fault", [_SwapsTiles, _WrongInTheSecondSlot, _LeavesOutItsOwn])
def test_the_self_test_fails_on_a_broken_variant(fault: type[AllReduce]) -> None:
    """A wrong kernel must not be committed by a flip."""
    refused: list[int] = []

    def run(place: ReducePlace) -> None:
        with pytest.raises(SelfTestError, match="gave a wrong sum"):
            reduce.self_test(fault(place), place)
        refused.append(place.slots.rank)

    _on_ranks(2, run)
    assert sorted(refused) == [0, 1]


def _processes(num_ranks: int, scenario: str, out: Path) -> tuple[list[int], list[dict[str, Any]]]:
    """Exit statuses of all ranks, and what those said that lived."""
    ended = subprocess.run(
        [sys.executable, "-m", product_ranks.__name__, str(num_ranks), scenario, str(out)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    told = [json.loads(file.read_text()) for file in sorted(out.iterdir())]
    return json.loads(ended.stdout), told


@pytest.mark.parametrize("num_ranks", [2, 3, 4])
def test_processes_agree_with_the_process_group_to_rounding(num_ranks: int, tmp_path: Path) -> None:
    """Same bits on every rank; a first forward of `fused_steady` is the process group's itself."""
    statuses, told = _processes(num_ranks, "agrees", tmp_path)
    assert statuses == [0] * num_ranks
    for key, of_rank0 in told[0].items():
        assert {of_rank[key]["digest"] for of_rank in told} == {of_rank0["digest"]}, key
        # The sum of K products of normal numbers has a deviation of sqrt(K); 2^-24 is half a unit.
        assert of_rank0["deviation"] <= 32 * num_ranks * 2**-24, key
    first_forwards = [
        told[0][key] for key in told[0] if key.startswith("fused_steady") and "True" in key
    ]
    assert len(first_forwards) == len(product_ranks.SHAPES)
    assert all(forward["has_oracle_bits"] for forward in first_forwards)


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_a_process_that_is_killed_between_two_tiles_is_given_up(
    num_ranks: int, tmp_path: Path
) -> None:
    """Every survivor has its two whole products and then an error: nothing hangs."""
    statuses, told = _processes(num_ranks, "dies", tmp_path)
    assert statuses == [0] * (num_ranks - 1) + [-9]
    assert told == [
        {"num_products": 2, "error": f"rank {num_ranks - 1} did not come to an all-reduce in 1.0 s"}
    ] * (num_ranks - 1)
