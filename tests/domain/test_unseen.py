"""What was never met: bounds hold as often as they say, and a narrow selection proves nothing."""

from collections import Counter
from collections.abc import Sequence
from math import fsum
from random import Random

import pytest

from controlplane.domain import rates, unseen
from controlplane.domain.unseen import bin_of

ALPHA = 0.05
NUM_TRIALS = 1000
NUM_SESSIONS = 120
# Weights of labels: alike, some common and a long tail, one common and many rare, a few.
POPULATIONS = {
    "alike": [1.0] * 60,
    "long tail": [1 / rank for rank in range(1, 400)],
    "one common": [100.0, *[0.1] * 300],
    "four": [0.7, 0.2, 0.08, 0.02],
}


@pytest.fixture(params=POPULATIONS)
def population(request: pytest.FixtureRequest) -> Sequence[float]:
    weights = POPULATIONS[request.param]
    return [weight / sum(weights) for weight in weights]


def drawn(population: Sequence[float], random: Random, num: int = NUM_SESSIONS) -> list[int]:
    return random.choices(range(len(population)), population, k=num)


def missing(population: Sequence[float], labels: Sequence[int]) -> float:
    met = set(labels)
    return min(fsum(share for label, share in enumerate(population) if label not in met), 1.0)


def test_the_estimate_is_the_share_of_labels_met_once() -> None:
    share = unseen.unseen({300: 5, 301: 1, 310: 1, 400: 3, 500: 0}, alpha=ALPHA)
    assert share.estimate == pytest.approx(2 / 10)
    assert (share.num, share.num_labels) == (10, 4)


def test_the_estimate_lies_around_the_share_that_it_estimates(population: Sequence[float]) -> None:
    """Good and Turing's estimate is too high by less than 1 / n on average."""
    random = Random(20261130)
    errors = []
    for _ in range(NUM_TRIALS):
        labels = drawn(population, random)
        share = unseen.unseen(Counter(labels), alpha=ALPHA)
        assert share.estimate is not None
        errors.append(share.estimate - missing(population, labels))
    mean = sum(errors) / len(errors)
    spread = sum((error - mean) ** 2 for error in errors) ** 0.5 / len(errors)
    assert -4 * spread <= mean <= 1 / NUM_SESSIONS + 4 * spread


def test_the_bounds_hold_as_often_as_they_say(population: Sequence[float]) -> None:
    random = Random(20261201)
    num_broken = Counter[str]()
    for _ in range(NUM_TRIALS):
        labels = drawn(population, random)
        truth = missing(population, labels)
        num_broken["counts"] += unseen.unseen(Counter(labels), alpha=ALPHA).bound < truth
        num_broken["halves"] += unseen.unseen_by_halves(labels, alpha=ALPHA).bound < truth
    assert num_broken["counts"] <= ALPHA * NUM_TRIALS
    assert num_broken["halves"] <= ALPHA * NUM_TRIALS


def test_the_bound_by_halves_is_exact_for_what_the_first_half_did_not_meet(
    population: Sequence[float],
) -> None:
    """Its own claim, without the slack of what the second half met: 5 %, plus three errors."""
    random = Random(20261202)
    num_broken = 0
    for _ in range(NUM_TRIALS):
        labels = drawn(population, random)
        truth = missing(population, labels[: NUM_SESSIONS // 2])
        num_broken += unseen.unseen_by_halves(labels, alpha=ALPHA).bound < truth
    assert num_broken / NUM_TRIALS <= ALPHA + 3 * (ALPHA * (1 - ALPHA) / NUM_TRIALS) ** 0.5


def test_the_bounds_of_a_soak_without_surprises_are_those_documented() -> None:
    labels = [length for _ in range(2) for length in range(360)]
    share = unseen.unseen(Counter(labels), alpha=ALPHA)
    assert share.bound == pytest.approx(0.1728, abs=1e-4)
    by_halves = unseen.unseen_by_halves(labels, alpha=ALPHA)
    assert by_halves.bound == pytest.approx(0.0083, abs=1e-4)
    assert by_halves.estimate == 0


def test_sessions_that_all_differ_leave_everything_unseen() -> None:
    labels = list(range(200))
    assert unseen.unseen(Counter(labels), alpha=ALPHA).bound == 1.0
    assert unseen.unseen_by_halves(labels, alpha=ALPHA).bound == 1.0
    assert unseen.unseen(Counter(labels), alpha=ALPHA).estimate == 1.0


@pytest.mark.parametrize("num", [0, 1, 10, 720, 100_000])
def test_a_single_length_is_no_evidence(num: int) -> None:
    """The benchmark of August 2026 had one prompt: Good and Turing alone would say 0."""
    for share in (
        unseen.unseen({300: num}, alpha=ALPHA),
        unseen.unseen_by_halves([300] * num, alpha=ALPHA),
    ):
        assert share.bound == 1.0
        assert share.estimate is None


def test_more_of_the_same_lengths_lower_the_bounds() -> None:
    bounds = [
        (
            unseen.unseen({100: num, 200: num}, alpha=ALPHA).bound,
            unseen.unseen_by_halves([100, 200] * num, alpha=ALPHA).bound,
        )
        for num in (10, 100, 1000)
    ]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0][1] > bounds[1][1] > bounds[2][1]


def test_production_s_mass_outside_what_was_met_is_counted() -> None:
    share = unseen.unmet({0: 70, 64: 20, 128: 10}, {0, 64, 4096}, alpha=ALPHA)
    assert share.estimate == pytest.approx(0.1)
    refuting = rates.one_sample_evidence(90, 100, rate=1 - share.bound, num_expected=50)
    assert refuting == pytest.approx(1 / ALPHA)
    assert 0.1 < share.bound < 0.25
    assert (share.num, share.num_labels) == (100, 3)


def test_a_canary_of_one_length_has_not_met_production() -> None:
    """A fixed prompt passes every gate and says nothing of 99 of 100 sessions."""
    production = {bin_of(length, width=1): 1 for length in range(100)}
    share = unseen.unmet(production, {300}, alpha=ALPHA)
    assert (share.estimate, share.bound) == (1.0, 1.0)
    assert unseen.unmet(production, {50}, alpha=ALPHA).bound > 0.99
    most = dict.fromkeys(range(100), 10)
    assert unseen.unmet(most, range(99), alpha=ALPHA).bound < 0.03


def test_without_production_nothing_is_known() -> None:
    share = unseen.unmet({}, {300}, alpha=ALPHA)
    assert (share.estimate, share.bound) == (None, 1.0)
    assert unseen.unmet({300: 0}, {300}, alpha=ALPHA).bound == 1.0


def test_meeting_everything_still_leaves_what_the_sample_may_have_missed() -> None:
    share = unseen.unmet({0: 300, 64: 420}, {0, 64}, alpha=ALPHA)
    assert share.estimate == 0
    fixed = rates.least_rate_excluded(720, alpha=ALPHA)
    assert fixed < share.bound < 1.03 * fixed


def test_the_bound_of_the_unmet_share_holds_at_every_look_while_both_sides_grow(
    population: Sequence[float],
) -> None:
    """A canary that meets more and more, looked at after every session of production."""
    random = Random(20261203)
    bounds: dict[tuple[int, int], float] = {}
    num_broken, num_runs = 0, 200
    for _ in range(num_runs):
        canary = drawn([1.0] * len(population), random, num=60)
        production: list[int] = []
        for look, label in enumerate(drawn(population, random, num=60), start=1):
            production.append(label)
            met = set(canary[:look])
            key = sum(each not in met for each in production), look
            if key not in bounds:
                counts = {True: key[0], False: look - key[0]}
                bounds[key] = unseen.unmet(counts, {False}, alpha=ALPHA).bound
            if bounds[key] < missing(population, canary[:look]):
                num_broken += 1
                break
    assert num_broken / num_runs <= ALPHA


def test_the_bound_of_the_unmet_share_survives_four_hundred_looks() -> None:
    """Exactly, by enumeration: a share of 5 %, a canary that met what it met."""
    share, alive, broken = 0.05, {0: 1.0}, 0.0
    for look in range(1, 401):
        after: dict[int, float] = {}
        for bad, chance in alive.items():
            after[bad] = after.get(bad, 0.0) + chance * (1 - share)
            after[bad + 1] = after.get(bad + 1, 0.0) + chance * share
        alive = {bad: chance for bad, chance in after.items() if chance > 1e-8}
        for bad in sorted(alive):  # the bound rises with them
            bound = unseen.unmet({1: bad, 0: look - bad}, {0}, alpha=ALPHA).bound
            if bound >= share:
                break
            broken += alive.pop(bad)
    assert 0 < broken <= ALPHA


def test_a_bin_is_called_by_its_least_length() -> None:
    assert [bin_of(length, width=64) for length in (0, 63, 64, 300)] == [0, 0, 64, 256]
    assert [bin_of(length, width=1) for length in (0, 63)] == [0, 63]


def test_impossible_counts_and_widths_are_refused() -> None:
    with pytest.raises(AssertionError, match="less than never"):
        unseen.unseen({1: -1, 2: 3}, alpha=ALPHA)
    with pytest.raises(AssertionError, match="less than never"):
        unseen.unmet({1: -1, 2: 3}, {1}, alpha=ALPHA)
    with pytest.raises(AssertionError, match="alpha 0"):
        unseen.unseen({1: 1, 2: 3}, alpha=0)
    with pytest.raises(AssertionError, match="width 0"):
        bin_of(3, width=0)
