"""What one rate may be, and whether it exceeds a limit, valid however often one looks.

For display, for guards against an absolute limit and for the check that arms came out as drawn. A
comparison of two arms is `eprocess`'s: an absolute limit on the slow rate calls every bad week a
regression.
"""

from collections.abc import Callable, Sequence
from math import exp, expm1, fsum, inf, isclose, lgamma, log, log1p
from typing import Final

# The number of sessions at which interval and evidence are sharpest: a canary's usual length.
NUM_EXPECTED: Final = 400
# Of the prior of a sample-ratio check, in sessions: as sharp as Netflix's published default.
CONCENTRATION: Final = 100.0
_ALPHA_EXPECTED: Final = 0.05
_NUM_HALVINGS: Final = 100  # at most, of a bisection
_NEAR: Final = 1e-13  # where it ends, relative
_MOST_TERMS: Final = 100_000  # of the continued fraction; it takes O(sqrt(a + b))
_MOST_LOG: Final = 575.0  # e to this is still a float
_LEAST: Final = 1e-300  # stands for a zero in the continued fraction (Lentz)
_PRECISION: Final = 1e-15


def one_sample_evidence(
    bad: int, num: int, *, rate: float, num_expected: float = NUM_EXPECTED
) -> float:
    """The e-value against "the rate is at most `rate`": 20 or more, ever, in 5 % of such cases.

    Args:
        bad: of `num`, in any order: the value depends on the counts alone.
        num: units seen so far; 0 gives 1.
        rate: the limit, in (0, 1).
        num_expected: units at which it is sharpest; must not depend on what was seen.

    Source: Howard, Ramdas, McAuliffe, Sekhon (2021), Annals of Statistics 49:1055, proposition 7,
    the one-sided beta-binomial mixture.
    """
    _check_counts(bad, num)
    _check_share("rate", rate)
    bad_before, good_before = _prior(rate, num_expected, alpha=2 * _ALPHA_EXPECTED)
    # The prior is cut to rates above the limit, so that a good canary is no evidence against it.
    log_value = (
        _log_mixture(bad, num, rate, (bad_before, good_before))
        + log_incomplete_beta(1 - rate, good_before + num - bad, bad_before + bad)
        - log_incomplete_beta(1 - rate, good_before, bad_before)
    )
    return exp(min(log_value, _MOST_LOG))


def interval(
    bad: int, num: int, *, alpha: float, num_expected: float = NUM_EXPECTED
) -> tuple[float, float]:
    """Where the rate may lie; with probability 1 - alpha it does so at every look.

    Args:
        bad: of `num`.
        num: units seen so far; 0 gives (0, 1).
        alpha: in (0, 1).
        num_expected: units at which the interval is narrowest.

    Returns: the rates that the two-sided beta-binomial mixture does not refute.

    Source: Howard et al. (2021), propositions 6 and 7.
    """
    _check_counts(bad, num)
    _check_share("alpha", alpha)

    def is_refuted(rate: float) -> bool:
        prior = _prior(rate, num_expected, alpha=_ALPHA_EXPECTED)
        return _log_mixture(bad, num, rate, prior) >= -log(alpha)

    share = bad / num if num else 0.5
    low = _boundary(is_refuted, refuted=0.0, kept=share) if bad else 0.0
    high = _boundary(is_refuted, refuted=1.0, kept=share) if bad < num else 1.0
    return low, high


def upper_bound_at_any_look(
    bad: int, num: int, *, alpha: float, num_expected: float = NUM_EXPECTED
) -> float:
    """The least rate that `one_sample_evidence` of the good units refutes, with all above it.

    Ever below the rate with probability <= alpha; Clopper and Pearson's bound, looked at again and
    again, is so far more often.

    Args:
        bad: of `num`.
        num: units seen so far; 0 gives 1.
        alpha: in (0, 1).
        num_expected: units at which it is sharpest.
    """
    _check_counts(bad, num)
    _check_share("alpha", alpha)
    if bad == num:
        return 1.0

    def is_refuted(rate: float) -> bool:
        if rate >= 1 - _PRECISION:
            return True
        good = one_sample_evidence(num - bad, num, rate=1 - rate, num_expected=num_expected)
        return good >= 1 / alpha

    return _boundary(is_refuted, refuted=1.0, kept=bad / num)


def least_rate_excluded(num_clean: int, *, alpha: float) -> float:
    """The rate from which on so many units without a bad one are improbable: 1 - alpha^(1 / num).

    For a number of units fixed beforehand, as that of a soak is.
    """
    return upper_bound(0, num_clean, alpha=alpha)


def upper_bound(bad: int, num: int, *, alpha: float) -> float:
    """Clopper and Pearson's one-sided bound: below the rate with probability <= alpha.

    Args:
        bad: of `num`.
        num: fixed beforehand, not by what was seen; 0 gives 1.
        alpha: in (0, 1).

    Source: Clopper, Pearson (1934), Biometrika 26:404.
    """
    _check_counts(bad, num)
    _check_share("alpha", alpha)
    if bad == num:
        return 1.0
    if bad == 0:
        return -expm1(log(alpha) / num)

    def is_refuted(rate: float) -> bool:
        return log_incomplete_beta(1 - rate, num - bad, bad + 1) <= log(alpha)

    return _boundary(is_refuted, refuted=1.0, kept=bad / num)


def sample_ratio_evidence(
    counts: Sequence[int], shares: Sequence[float], *, concentration: float = CONCENTRATION
) -> float:
    """The e-value against "units came in the drawn shares": large where an arm loses records.

    Args:
        counts: units recorded, by arm.
        shares: of the draw, in the same order, above 0, with the sum 1.
        concentration: of the Dirichlet prior around the shares; small for few units, large faults.

    Source: Lindon, Malek (2022), "Anytime-valid inference for multinomial count data".
    """
    assert len(counts) == len(shares) > 1, f"{len(counts)} counts, {len(shares)} shares"
    assert all(count >= 0 for count in counts), f"counts {counts}"
    assert all(share > 0 for share in shares), f"shares {shares}"
    assert isclose(fsum(shares), 1.0, abs_tol=1e-9), f"shares {shares} have the sum {fsum(shares)}"
    assert concentration > 0, f"concentration {concentration}"
    log_value = lgamma(concentration) - lgamma(concentration + sum(counts))
    log_value += fsum(
        lgamma(concentration * share + count) - lgamma(concentration * share) - count * log(share)
        for count, share in zip(counts, shares, strict=True)
    )
    return exp(min(log_value, _MOST_LOG))


def failure_factor(*, is_canary: bool, canary: int, control: int, hazard_ratio: float) -> float:
    """What one failure multiplies the bet on `hazard_ratio` by, the moment that it happens.

    The anytime-valid logrank test. Of one failure alone it equals `eprocess.log_factor`'s; it needs
    no window that closes, but must not count a failure that a block counts as well.

    Args:
        is_canary: whose failure it is.
        canary: units at risk just before it.
        control: likewise.
        hazard_ratio: that is bet on, above 0.

    Source: ter Schure, Perez-Ortiz, Ly, Gruenwald (2024), NEJSDS 2(2).
    """
    at_risk = canary if is_canary else control
    assert at_risk > 0, "a unit that failed was at risk"
    assert min(canary, control) >= 0, f"{canary} and {control} at risk"
    assert hazard_ratio > 0, f"hazard ratio {hazard_ratio}"
    mean = (canary * hazard_ratio + control) / (canary + control)
    return (hazard_ratio if is_canary else 1.0) / mean


def log_incomplete_beta(x: float, a: float, b: float) -> float:
    """Natural logarithm of the regularised incomplete beta function I_x(a, b).

    Args:
        x: in [0, 1].
        a: above 0.
        b: above 0.

    Source: DLMF 8.17.22, a continued fraction, by the modified method of Lentz.
    """
    assert 0 <= x <= 1, f"x = {x}"
    assert min(a, b) > 0, f"a = {a}, b = {b}"
    if x in (0, 1):
        return 0.0 if x else -inf
    if x < (a + 1) / (a + b + 2):  # where the fraction converges quickly
        return _log_lower_tail(x, a, b)
    return log1p(-exp(_log_lower_tail(1 - x, b, a)))


def _log_lower_tail(x: float, a: float, b: float) -> float:
    front = a * log(x) + b * log1p(-x) - log(a) - _log_beta(a, b)
    return front - log(_continued_fraction(x, a, b))


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...))."""
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, _MOST_TERMS):
        m, is_odd = divmod(term, 2)
        if is_odd:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + coefficient * d or _LEAST)
        c = 1 + coefficient / c or _LEAST
        value *= c * d
        if abs(c * d - 1) < _PRECISION:
            return value
    raise AssertionError(f"I_{x}({a}, {b}) did not converge")


def _prior(rate: float, num_expected: float, *, alpha: float) -> tuple[float, float]:
    """Bad and good units of the beta prior around `rate`, sharpest at `num_expected` units.

    Howard et al., section 3.5: the best variance of a normal mixture, carried over.
    """
    variance = rate * (1 - rate)
    log_odds = 2 * log(1 / alpha)
    best = variance * num_expected / (log_odds + log1p(log_odds))
    strength = max(best - variance, 1e-3 * variance)
    return strength / (1 - rate), strength / rate


def _log_mixture(bad: int, num: int, rate: float, prior: tuple[float, float]) -> float:
    """Logarithm of the mean likelihood ratio against `rate` over a beta prior."""
    good = num - bad
    ratio = _log_beta(prior[0] + bad, prior[1] + good) - _log_beta(*prior)
    return ratio - bad * log(rate) - good * log1p(-rate)


def _log_beta(a: float, b: float) -> float:
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _boundary(is_refuted: Callable[[float], bool], *, refuted: float, kept: float) -> float:
    """Between a rate beyond all that is kept and one that is: by bisection, on the refuted side."""
    for _ in range(_NUM_HALVINGS):
        if abs(refuted - kept) <= _NEAR * max(refuted, kept):
            break
        middle = (refuted + kept) / 2
        refuted, kept = (middle, kept) if is_refuted(middle) else (refuted, middle)
    return refuted


def _check_counts(bad: int, num: int) -> None:
    assert 0 <= bad <= num, f"{bad} of {num} bad"


def _check_share(name: str, value: float) -> None:
    assert 0 < value < 1, f"{name} {value} is outside (0, 1)"
