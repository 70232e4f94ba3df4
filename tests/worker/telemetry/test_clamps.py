"""Counts of clamped numbers from the ranks to the process window: small, whole and right."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import MAX_WORST_HEADS
from worker.engine import clamps, memory
from worker.engine.clamps import ClampSample, HeadCount

NUM_BLOCKS, NUM_HEADS, NUM_RANKS = 4, 3, 2
numbers = st.sampled_from([0, 0, 0, 1, 2, 50])
of_rank = st.lists(
    st.lists(
        st.lists(numbers, min_size=NUM_HEADS, max_size=NUM_HEADS),
        min_size=NUM_BLOCKS,
        max_size=NUM_BLOCKS,
    ),
    min_size=2,
    max_size=2,
)


def sample(counts: Any, rank: int = 0) -> ClampSample:
    return clamps.of_rank(counts, first_head=rank * NUM_HEADS)


def answer(**fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "resident_bytes": 1,
        "limit_bytes": None,
        "flag_bytes": {},
        "retained_by_length": {},
        "num_graphs": 0,
    }
    return {**base, **fields}


@given(st.lists(of_rank, min_size=NUM_RANKS, max_size=NUM_RANKS))
def test_the_worst_heads_of_a_group_are_those_of_all_its_heads(ranks: list[Any]) -> None:
    """Each rank sends its own worst only; nothing worse may hide behind them."""
    found = clamps.merged(sample(counts, rank) for rank, counts in enumerate(ranks))
    everywhere = sorted(
        (
            HeadCount(
                block=block,
                head=rank * NUM_HEADS + head,
                num_keys=counts[0][block][head],
                num_values=counts[1][block][head],
            )
            for rank, counts in enumerate(ranks)
            for block in range(NUM_BLOCKS)
            for head in range(NUM_HEADS)
        ),
        key=lambda one: (-one.num_keys - one.num_values, one.block, one.head),
    )
    clamped = [one for one in everywhere if one.num_keys + one.num_values > 0]
    assert found is not None
    assert list(found.worst) == clamped[:MAX_WORST_HEADS]
    assert found.num_keys == sum(one.num_keys for one in everywhere)
    assert found.num_values == sum(one.num_values for one in everywhere)


def test_none_clamped_is_a_measurement() -> None:
    nothing = [[[0] * NUM_HEADS] * NUM_BLOCKS] * 2
    assert sample(nothing) == ClampSample(num_keys=0, num_values=0, worst=())


def test_a_rank_that_does_not_watch_leaves_the_group_unknown() -> None:
    """The other half of the heads would pass for all."""
    known = sample([[[1] * NUM_HEADS] * NUM_BLOCKS] * 2)
    assert clamps.merged([known, None]) is None
    assert clamps.merged([]) is None


@given(of_rank)
def test_a_sample_comes_through_the_channel_as_it_was(counts: Any) -> None:
    told = sample(counts, rank=1)
    answers = [answer(clamps=clamps.to_fields(told))]
    assert memory.summed(answers).clamps == told


def test_ranks_that_say_nothing_of_clamped_numbers_are_understood() -> None:
    assert memory.summed([answer(), answer()]).clamps is None
    half = [answer(), answer(clamps=clamps.to_fields(sample([[[1]], [[0]]])))]
    assert memory.summed(half).clamps is None
