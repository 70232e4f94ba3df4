"""One rate: against published numbers, and validity by exact enumeration instead of simulation."""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import comb, exp, expm1, inf, isclose, log, log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain import eprocess, rates
from controlplane.domain.eprocess import ODDS_RATIOS, Table


def binomial(bad: int, num: int, rate: float) -> float:
    return comb(num, bad) * rate**bad * (1 - rate) ** (num - bad)


def ever(refutes: Callable[[int, int], bool], *, rate: float, horizon: int) -> float:
    """The exact probability that sessions of a constant rate are ever refuted up to a horizon."""
    alive, refuted = {0: 1.0}, 0.0
    for num in range(1, horizon + 1):
        after: dict[int, float] = {}
        for bad, probability in alive.items():
            after[bad] = after.get(bad, 0.0) + probability * (1 - rate)
            after[bad + 1] = after.get(bad + 1, 0.0) + probability * rate
        alive = {}
        for bad, probability in after.items():
            if probability < 1e-9:  # fewer than 400 x 400 of them: left out is less than 0.02 %
                continue
            if refutes(bad, num):
                refuted += probability
            else:
                alive[bad] = probability
    return refuted


# --- the incomplete beta function


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 99))
def test_the_incomplete_beta_function_is_the_binomial_tail(a: int, b: int, percent: int) -> None:
    """I_x(a, b) = P(X >= a), X of a + b - 1 draws; summed in exact fractions."""
    x, num = Fraction(percent, 100), a + b - 1
    tail = sum(comb(num, k) * x**k * (1 - x) ** (num - k) for k in range(a, num + 1))
    found = rates.log_incomplete_beta(percent / 100, a, b)
    assert isclose(exp(found), float(tail), rel_tol=1e-10)


@given(st.floats(1e-6, 1 - 1e-6), st.floats(1e-3, 1e4))
def test_the_incomplete_beta_function_has_its_closed_forms(x: float, a: float) -> None:
    assert isclose(rates.log_incomplete_beta(x, a, 1), a * log(x), rel_tol=1e-9, abs_tol=1e-12)
    expected = -expm1(a * log1p(-x))
    assert isclose(exp(rates.log_incomplete_beta(x, 1, a)), expected, rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize("a", [0.01, 1.0, 37.5, 1e4, 1e7])
def test_the_incomplete_beta_function_is_one_half_in_the_middle(a: float) -> None:
    """Ten million sessions a side still converge."""
    assert isclose(exp(rates.log_incomplete_beta(0.5, a, a)), 0.5, rel_tol=1e-6)


def test_the_incomplete_beta_function_keeps_tails_that_are_no_float() -> None:
    assert isclose(rates.log_incomplete_beta(1e-3, 400, 1), 400 * log(1e-3))
    assert rates.log_incomplete_beta(0.0, 2, 3) == -inf
    assert rates.log_incomplete_beta(1.0, 2, 3) == 0


# --- one sample against a limit


@pytest.mark.parametrize(
    ("bad", "num", "log_value"),
    [(3, 50, 0.921308502), (10, 100, 6.702522825), (20, 400, 5.377396063)],
)
def test_one_sample_evidence_is_confseq_s(bad: int, num: int, log_value: float) -> None:
    """confseq 0.0.11, one-sided beta-binomial log mixture, p0 = 0.02, v_opt = 200 p0 q0."""
    value = rates.one_sample_evidence(bad, num, rate=0.02, num_expected=200)
    assert isclose(log(value), log_value, abs_tol=1e-6)


def test_one_sample_evidence_reaches_a_hundred_where_confseq_s_bound_lies() -> None:
    """`beta_binomial_mixture_bound(400 p0 q0, .01, ...)` = 11.0967 above the mean of 8: 19.0967."""
    found = [rates.one_sample_evidence(bad, 400, rate=0.02, num_expected=200) for bad in (19, 20)]
    assert found[0] < 100 < found[1]


@pytest.mark.parametrize("limit", [0.002, 0.02, 0.3])
@pytest.mark.parametrize("num", [1, 7, 60])
def test_one_sample_evidence_has_mean_one_at_the_limit_and_less_below(
    limit: float, num: int
) -> None:
    values = [rates.one_sample_evidence(bad, num, rate=limit) for bad in range(num + 1)]

    def mean(rate: float) -> float:
        return sum(binomial(bad, num, rate) * value for bad, value in enumerate(values))

    assert isclose(mean(limit), 1.0, rel_tol=1e-8)
    means = [mean(limit * part) for part in (0.1, 0.5, 0.9, 1.0, 1.1)]
    assert all(less < more for less, more in pairwise(means))


@pytest.mark.parametrize("limit", [0.007, 0.07])
def test_one_sample_evidence_rarely_ever_alarms_at_the_limit(limit: float) -> None:
    def alarms(bad: int, num: int) -> bool:
        return rates.one_sample_evidence(bad, num, rate=limit) >= 20

    assert ever(alarms, rate=limit, horizon=200) <= 0.05
    assert ever(alarms, rate=4 * limit, horizon=200) > 0.5


def test_no_sessions_are_no_evidence() -> None:
    assert isclose(rates.one_sample_evidence(0, 0, rate=0.02), 1.0)
    assert rates.interval(0, 0, alpha=0.05) == (0.0, 1.0)
    assert rates.upper_bound(0, 0, alpha=0.05) == 1.0
    assert rates.upper_bound_at_any_look(0, 0, alpha=0.05) == 1.0
    assert isclose(rates.sample_ratio_evidence((0, 0), (0.2, 0.8)), 1.0)


# --- intervals


@pytest.mark.parametrize(
    ("bad", "num", "alpha", "low", "high"),
    [
        (0, 50, 0.05, 0.0, 0.169680659),
        (0, 400, 0.05, 0.0, 0.010248406),
        (1, 50, 0.05, 0.0, 0.207816798),
        (3, 400, 0.05, 0.00024553, 0.027878023),
        (7, 1000, 0.05, 0.001283822, 0.018003456),
        (28, 400, 0.05, 0.037045591, 0.114613491),
        (70, 1000, 0.05, 0.047441806, 0.097240586),
        (0, 400, 0.01, 0.0, 0.015701265),
        (3, 400, 0.01, 0.000107091, 0.033890054),
        (7, 1000, 0.01, 0.000927333, 0.02056302),
        (28, 400, 0.01, 0.032704837, 0.124313631),
    ],
)
def test_the_interval_is_confseq_s(
    bad: int, num: int, alpha: float, low: float, high: float
) -> None:
    """confseq 0.0.11 `bernoulli_confidence_interval` with t_opt = 400; its roots are to 1e-9."""
    found = rates.interval(bad, num, alpha=alpha)
    assert found == pytest.approx((low, high), abs=2e-9)


@pytest.mark.parametrize(
    ("bad", "num", "num_expected", "low", "high"),
    [(700, 1000, 100, 0.651629, 0.745949), (5, 50, 50, 0.013021, 0.269264)],
)
def test_the_interval_is_that_of_confseq_s_own_test(
    bad: int, num: int, num_expected: int, low: float, high: float
) -> None:
    found = rates.interval(bad, num, alpha=0.05, num_expected=num_expected)
    assert found == pytest.approx((low, high), abs=1e-6)


@pytest.mark.parametrize("rate", [0.007, 0.2])
def test_the_interval_rarely_ever_loses_the_rate(rate: float) -> None:
    def loses(bad: int, num: int) -> bool:
        low, high = rates.interval(bad, num, alpha=0.05)
        return not low <= rate <= high

    assert ever(loses, rate=rate, horizon=80) <= 0.05


@given(st.integers(0, 500), st.integers(0, 500), st.sampled_from([0.01, 0.05, 0.5]))
def test_the_interval_holds_the_share_and_nothing_outside_zero_and_one(
    bad: int, good: int, alpha: float
) -> None:
    low, high = rates.interval(bad, bad + good, alpha=alpha)
    assert 0 <= low <= bad / max(bad + good, 1) <= high <= 1
    assert (low == 0) >= (bad == 0)
    assert (high == 1) >= (good == 0)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_interval_of_good_units_mirrors_that_of_bad_ones(bad: int, good: int) -> None:
    low, high = rates.interval(bad, bad + good, alpha=0.05)
    mirrored = rates.interval(good, bad + good, alpha=0.05)
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-9)


def test_the_interval_is_what_the_mixture_does_not_refute() -> None:
    """No rate between the ends is refuted and none outside is kept: bisection missed no island."""
    for bad, num in ((0, 30), (1, 50), (3, 400), (40, 60), (60, 60)):
        low, high = rates.interval(bad, num, alpha=0.05)
        for step in range(1, 400):
            rate = step / 400
            prior = rates._prior(rate, rates.NUM_EXPECTED, alpha=0.05)
            is_kept = rates._log_mixture(bad, num, rate, prior) < log(20)
            assert is_kept == (low < rate < high), (bad, num, rate)


def test_clopper_and_pearson_s_bounds_are_the_published_ones() -> None:
    """statsmodels 0.15, 3 of 400, 95 % two-sided: a share of 2.5 % at either end."""
    assert rates.upper_bound(3, 400, alpha=0.025) == pytest.approx(0.02176067, abs=1e-8)
    assert 1 - rates.upper_bound(397, 400, alpha=0.025) == pytest.approx(0.00154936, abs=1e-8)


@given(st.integers(0, 60), st.integers(1, 60), st.sampled_from([0.01, 0.05, 0.5]))
def test_clopper_and_pearson_s_bound_leaves_alpha(bad: int, good: int, alpha: float) -> None:
    num = bad + good
    bound = rates.upper_bound(bad, num, alpha=alpha)
    left = sum(binomial(each, num, bound) for each in range(bad + 1))
    assert isclose(left, alpha, rel_tol=1e-6)
    assert bound > bad / num or alpha == 0.5


@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_the_bound_at_any_look_is_rarely_ever_below_the_rate(rate: float) -> None:
    """And looking on is what Clopper and Pearson's does not bear."""

    def is_below(bad: int, num: int) -> bool:
        if bad >= rate * num:  # cheap: a bound is never below the share
            return False
        return rates.upper_bound_at_any_look(bad, num, alpha=0.05, num_expected=50) < rate

    def is_below_at_one_look(bad: int, num: int) -> bool:
        return bad < rate * num and rates.upper_bound(bad, num, alpha=0.05) < rate

    assert ever(is_below, rate=rate, horizon=60) <= 0.05
    assert ever(is_below_at_one_look, rate=rate, horizon=60) > 0.07


def test_the_bound_at_any_look_has_all_refuted_above_and_none_below() -> None:
    for bad, num in ((0, 1), (0, 30), (1, 50), (3, 400), (40, 60), (59, 60)):
        bound = rates.upper_bound_at_any_look(bad, num, alpha=0.05)
        for step in range(1, 200):
            rate = step / 200
            value = rates.one_sample_evidence(num - bad, num, rate=1 - rate)
            assert (value >= 20) == (rate > bound), (bad, num, rate)


@given(st.integers(0, 300), st.integers(1, 300))
def test_the_bound_at_any_look_is_wider_than_that_of_one_look(bad: int, good: int) -> None:
    num = bad + good
    bound = rates.upper_bound_at_any_look(bad, num, alpha=0.05)
    assert rates.upper_bound(bad, num, alpha=0.05) <= bound <= 1
    if bad < num - 1:
        assert bound <= rates.upper_bound_at_any_look(bad + 1, num, alpha=0.05)


def test_all_bad_leaves_every_rate() -> None:
    assert rates.upper_bound(5, 5, alpha=0.05) == 1.0
    assert rates.upper_bound_at_any_look(5, 5, alpha=0.05) == 1.0


def test_the_reference_soak_excludes_what_it_can() -> None:
    """720 clean sessions of the 15 hours exclude 0.415 % and more, not the 0.08 % that came."""
    assert rates.least_rate_excluded(720, alpha=0.05) == pytest.approx(0.00415, abs=5e-6)
    assert isclose(rates.least_rate_excluded(720, alpha=0.05), 1 - 0.05 ** (1 / 720))
    assert rates.least_rate_excluded(0, alpha=0.05) == 1.0


# --- sample ratio


@pytest.mark.parametrize(
    ("counts", "concentration", "expected"),
    [
        ((7, 3), 100.0, 1.737448851130176),
        ((7, 3), 10.0, 13.214219024010028),
        ((7, 2), 10.0, 20.085612916495254),  # the stream (1,0) (0,1) (2,0) (1,1) (3,0)
        ((7, 2), 100.0, 1.8476285343726275),
    ],
)
def test_sample_ratio_evidence_is_savvi_s(
    counts: tuple[int, int], concentration: float, expected: float
) -> None:
    """savvi 0.3.1 `Multinomial(alpha=.05, theta_0=[.2, .8])`."""
    found = rates.sample_ratio_evidence(counts, (0.2, 0.8), concentration=concentration)
    assert isclose(found, expected, rel_tol=1e-9)


@pytest.mark.parametrize("concentration", [1.0, 10.0, 100.0])
def test_sample_ratio_evidence_has_mean_one_under_the_draw(concentration: float) -> None:
    mean = sum(
        binomial(canary, 60, 0.2)
        * rates.sample_ratio_evidence(
            (canary, 60 - canary), (0.2, 0.8), concentration=concentration
        )
        for canary in range(61)
    )
    assert isclose(mean, 1.0, rel_tol=1e-9)


def test_an_arm_that_loses_half_of_its_records_is_noticed() -> None:
    """A crash that leaves no record is the one fault no comparison of records can see."""
    assert rates.sample_ratio_evidence((200, 800), (0.2, 0.8)) < 1
    assert rates.sample_ratio_evidence((100, 800), (0.2, 0.8)) > 1e6


def test_sample_ratio_evidence_does_not_depend_on_the_order_of_arms() -> None:
    forward = rates.sample_ratio_evidence((3, 5, 9), (0.1, 0.3, 0.6))
    assert isclose(forward, rates.sample_ratio_evidence((9, 3, 5), (0.6, 0.1, 0.3)))


# --- one failure, at once


@given(st.integers(1, 60), st.integers(1, 60), st.sampled_from(ODDS_RATIOS))
def test_one_failure_is_worth_what_its_block_is(canary: int, control: int, ratio: float) -> None:
    """So that counting at once and counting in blocks cannot be played against each other."""
    for is_canary in (True, False):
        table = Table(int(is_canary), canary, int(not is_canary), control)
        found = rates.failure_factor(
            is_canary=is_canary, canary=canary, control=control, hazard_ratio=ratio
        )
        assert isclose(log(found), eprocess.log_factor(table, ratio), rel_tol=1e-9, abs_tol=1e-12)


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.1, 50))
def test_a_failure_s_factor_has_mean_one_for_equal_arms(
    canary: int, control: int, ratio: float
) -> None:
    factors = [
        rates.failure_factor(is_canary=arm, canary=canary, control=control, hazard_ratio=ratio)
        for arm in (True, False)
    ]
    mean = (canary * factors[0] + control * factors[1]) / (canary + control)
    assert isclose(mean, 1.0, rel_tol=1e-9)


def test_a_failure_without_a_control_at_risk_says_nothing() -> None:
    factor = rates.failure_factor(is_canary=True, canary=9, control=0, hazard_ratio=8)
    assert isclose(factor, 1.0)


# --- input that cannot be


@pytest.mark.parametrize(
    "call",
    [
        lambda: rates.one_sample_evidence(3, 2, rate=0.1),
        lambda: rates.one_sample_evidence(-1, 2, rate=0.1),
        lambda: rates.one_sample_evidence(1, 2, rate=0.0),
        lambda: rates.interval(1, 2, alpha=1.0),
        lambda: rates.interval(3, 2, alpha=0.1),
        lambda: rates.upper_bound(1, 2, alpha=0.0),
        lambda: rates.upper_bound_at_any_look(1, 2, alpha=0.0),
        lambda: rates.upper_bound_at_any_look(3, 2, alpha=0.1),
        lambda: rates.sample_ratio_evidence((1, 2), (0.2, 0.7)),
        lambda: rates.sample_ratio_evidence((1, 2), (0.0, 1.0)),
        lambda: rates.sample_ratio_evidence((1, -2), (0.2, 0.8)),
        lambda: rates.sample_ratio_evidence((1,), (1.0,)),
        lambda: rates.sample_ratio_evidence((1, 2), (0.2, 0.8), concentration=0.0),
        lambda: rates.failure_factor(is_canary=True, canary=0, control=4, hazard_ratio=3),
        lambda: rates.failure_factor(is_canary=True, canary=1, control=-1, hazard_ratio=3),
        lambda: rates.failure_factor(is_canary=True, canary=1, control=4, hazard_ratio=0),
        lambda: rates.log_incomplete_beta(1.5, 1, 1),
        lambda: rates.log_incomplete_beta(0.5, 0, 1),
    ],
)
def test_impossible_counts_and_shares_are_refused(call: Callable[[], float]) -> None:
    with pytest.raises(AssertionError, match=r"\w"):
        call()
