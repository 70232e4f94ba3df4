"""Evidence that a canary is as good: published numbers, its mean over the null, false promotions.

Expected numbers are those of an independent study in numpy and scipy; what is simulated has fixed
seeds.
"""

from bisect import bisect
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, product
from math import comb, exp, fsum, isclose, isfinite, log
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import noninferiority
from controlplane.domain.eprocess import Table
from controlplane.domain.noninferiority import NonInferiority, nearest_null

CANARY, CONTROL = 10, 40
PROMOTE = 20
MARGINS = (0.01, 0.02, 0.03)

any_tables = st.lists(
    st.builds(
        lambda canary, control, bad, worse: Table(
            min(bad, canary), canary, min(worse, control), control
        ),
        *[st.integers(0, 30)] * 4,
    ),
    max_size=8,
)


def block(canary_bad: int, control_bad: int) -> Table:
    return Table(canary_bad, CANARY, control_bad, CONTROL)


def states(tables: Sequence[Table], margin: float) -> list[NonInferiority]:
    return [*accumulate(tables, NonInferiority.after, initial=NonInferiority(margin=margin))]


@pytest.mark.parametrize(
    ("margin", "expected"),
    [
        (0.01, [1.058732975, 1.323742325, 1.394354927, 0.624446673, 0.656761074]),
        (0.02, [1.159450764, 1.645994981, 1.89251023, 0.569636171, 0.653242834]),
        (0.03, [1.278764717, 2.035152315, 2.576328429, 0.611429444, 0.771539728]),
    ],
)
def test_the_value_block_by_block(margin: float, expected: list[float]) -> None:
    blocks = [block(*bad) for bad in [(0, 0), (0, 1), (0, 0), (1, 0), (0, 0)]]
    found = [state.value for state in states(blocks, margin)][1:]
    assert found == pytest.approx(expected, rel=2e-9)
    assert noninferiority.evidence(blocks, margin=margin) == found[-1]


@pytest.mark.parametrize(
    ("rate", "canary", "control", "margin", "expected"),
    [
        (0.007, 10, 40, 0.01, 0.0061247226),
        (0.05, 10, 40, 0.02, 0.0469622431),
        (0.5, 1, 1, 0.1, 0.45),
    ],
)
def test_the_nearest_point_of_the_null(
    rate: float, canary: int, control: int, margin: float, expected: float
) -> None:
    assert nearest_null(rate, canary, control, margin) == pytest.approx(expected, abs=6e-11)


@given(
    st.floats(1e-4, 0.9),
    st.integers(1, 50),
    st.integers(1, 200),
    st.floats(0.005, 0.09),
    st.floats(0, 1),
)
def test_no_other_point_of_the_null_s_edge_is_nearer(
    rate: float, canary: int, control: int, margin: float, where: float
) -> None:
    def divergence(y: float) -> float:
        def one(num: int, q: float) -> float:
            return num * (rate * log(rate / q) + (1 - rate) * log((1 - rate) / (1 - q)))

        return one(canary, y + margin) + one(control, y)

    nearest = nearest_null(rate, canary, control, margin)
    other = 1e-6 + where * (1 - margin - 2e-6)
    assert divergence(nearest) <= divergence(other) + 1e-9


@pytest.mark.parametrize(("margin", "num_blocks"), [(0.01, 34), (0.02, 17), (0.03, 11)])
def test_the_earliest_promotion_without_a_bad_session(margin: float, num_blocks: int) -> None:
    """340, 170 and 110 canary sessions: what a page may promise at best."""
    found = [state.value >= PROMOTE for state in states([block(0, 0)] * 40, margin)]
    assert found.index(True) == num_blocks


@pytest.mark.parametrize("margin", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("before", [(), ((1, 6), (0, 2)), ((0, 0),) * 20])
def test_the_next_factor_has_a_mean_of_at_most_one_over_the_whole_null(
    margin: float, before: tuple[tuple[int, int], ...]
) -> None:
    """Summed over all outcomes of one block, for pairs of rates on the edge and inside."""
    state = states([block(*bad) for bad in before], margin)[-1]
    canary, control = 4, 9
    factors = {
        (a, b): exp(state.after(Table(a, canary, b, control)).log_value - state.log_value)
        for a, b in product(range(canary + 1), range(control + 1))
    }

    def mean(canary_rate: float, control_rate: float) -> float:
        return fsum(
            factor
            * comb(canary, a)
            * canary_rate**a
            * (1 - canary_rate) ** (canary - a)
            * comb(control, b)
            * control_rate**b
            * (1 - control_rate) ** (control - b)
            for (a, b), factor in factors.items()
        )

    nearest = nearest_null((state.num_bad + 0.7) / (state.num_all + 100), canary, control, margin)
    assert isclose(mean(nearest + margin, nearest), 1.0, rel_tol=1e-9)
    for step, excess in product(range(51), (0.0, 0.01, 0.2)):
        control_rate = step / 50 * (1 - margin)
        canary_rate = min(control_rate + margin + excess, 1.0)
        assert mean(canary_rate, control_rate) <= 1 + 1e-9


@given(any_tables, st.sampled_from(MARGINS))
def test_a_larger_margin_is_never_harder_to_show_without_bad_canary_sessions(
    tables: list[Table], margin: float
) -> None:
    """What is promised at a later step cannot be looser than what an early one asks."""
    clean = [Table(0, table.canary, table.control_bad, table.control) for table in tables]
    tight = noninferiority.evidence(clean, margin=margin)
    wide = noninferiority.evidence(clean, margin=2 * margin)
    assert wide >= tight * (1 - 1e-9)


@given(any_tables, st.sampled_from(MARGINS), st.integers(0, 8))
def test_resuming_from_any_block_gives_the_same_state(
    tables: list[Table], margin: float, cut: int
) -> None:
    whole = states(tables, margin)
    state = whole[min(cut, len(tables))]
    for table in tables[cut:]:
        state = state.after(table)
    assert state == whole[-1]


@pytest.mark.parametrize("table", [Table(0, 0, 0, 40), Table(0, 10, 0, 0), Table(0, 0, 0, 0)])
def test_a_block_without_both_arms_changes_nothing(table: Table) -> None:
    """A canary without control is never shown to be as good."""
    state = states([block(0, 0)] * 3, 0.01)[-1]
    assert state.after(table) == state
    assert noninferiority.evidence([table] * 1000, margin=0.01) == 1.0


def test_a_bad_canary_session_always_costs() -> None:
    for margin, num_clean in product(MARGINS, (0, 10, 100)):
        before = states([block(0, 0)] * num_clean, margin)[-1]
        found = [before.after(block(bad, 0)).value for bad in range(CANARY + 1)]
        assert found == sorted(found, reverse=True)
        assert len(set(found)) == len(found)


def test_both_arms_bad_is_not_the_canary_s_fault() -> None:
    """Everybody bad shows nothing; everybody good does."""
    everybody = noninferiority.evidence([Table(10, 10, 40, 40)] * 30, margin=0.02)
    assert isfinite(everybody)
    assert everybody > noninferiority.evidence([Table(10, 10, 0, 40)] * 30, margin=0.02)


def test_evidence_of_any_length_stays_a_number() -> None:
    clean = states([block(0, 0)] * 20_000, 0.03)[-1]
    assert clean.log_value > 1000
    assert isfinite(clean.value)
    bad = states([block(10, 0)] * 300, 0.03)[-1]
    assert 0 <= bad.value < 1e-100
    assert isfinite(bad.log_value)


# --- simulated canaries, 10 canary and 40 control sessions a block


@cache
def _distribution(num: int, rate: float) -> list[float]:
    return [*accumulate(comb(num, k) * rate**k * (1 - rate) ** (num - k) for k in range(num))]


def num_bad(random: Random, num: int, rate: float) -> int:
    return bisect(_distribution(num, rate), random.random())


def blocks_until_promotion(
    seed: str, *, canary: float, control: float, margin: float, horizon: int = 400
) -> int | None:
    """None: never, or given up below e^-7, from where at most e^-10 of canaries promote."""
    random, state = Random(seed), NonInferiority(margin=margin)
    for index in range(horizon):
        bad = num_bad(random, CANARY, canary), num_bad(random, CONTROL, control)
        state = state.after(block(*bad))
        if state.value >= PROMOTE:
            return index + 1
        if state.log_value < -7:
            break
    return None


@pytest.mark.parametrize(
    ("margin", "control", "num_runs"),
    [(0.01, 0.007, 4000), (0.02, 0.007, 4000), (0.03, 0.007, 4000), (0.03, 0.07, 400)],
)
def test_a_canary_worse_by_the_margin_is_rarely_promoted(
    margin: float, control: float, num_runs: int
) -> None:
    """At most 5 % by the theorem, plus three errors of a simulated 5 %: 1.0 points for 4,000."""
    num = sum(
        blocks_until_promotion(
            f"worse {seed}", canary=control + margin, control=control, margin=margin
        )
        is not None
        for seed in range(num_runs)
    )
    assert num / num_runs <= 0.05 + 3 * (0.05 * 0.95 / num_runs) ** 0.5


@pytest.mark.parametrize(("margin", "expected"), [(0.02, 24), (0.03, 14)])
def test_a_healthy_canary_is_promoted_as_early_as_in_the_study(
    margin: float, expected: int
) -> None:
    """240 and 140 canary sessions at the median; to a tenth, for another generator of numbers."""
    found = [
        blocks_until_promotion(f"healthy {seed}", canary=0.007, control=0.007, margin=margin)
        for seed in range(300)
    ]
    blocks = median(10**9 if each is None else each for each in found)
    assert 0.9 * expected <= blocks <= 1.15 * expected
