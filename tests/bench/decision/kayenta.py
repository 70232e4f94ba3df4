"""Kayenta's judge, re-implemented from its description: Mann and Whitney's test of a shift.

The default of its judge: a two-sided interval of the shift at 98 %, a tolerance of a quarter of the
estimated shift, missing values removed, one judgement after each interval on all points so far.
"""

from collections.abc import Callable
from math import sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from tests.bench.decision.streams import CANARY, CONTROL, NUM_BLOCKS, Floats, Ints, Streams

CONFIDENCE: Final = 0.98
TOLERANCE: Final = 0.25
# Of its root finder; with tied points the interval ends where this lets it.
_ACCURACY: Final = 1e-4
_NUM_ROUNDS: Final = 1001
_QUANTILE: Final = NormalDist().inv_cdf((1 - CONFIDENCE) / 2)


def judged(streams: Streams) -> Ints:
    """As shipped: frame rates may not fall, rates of failure of the intervals may not rise."""
    z = _rate_scores(streams)
    stops = np.full(streams.num_streams, NUM_BLOCKS)
    for stream in range(streams.num_streams):
        # The tolerance only takes away from what the plain test says.
        for block in np.flatnonzero(z[stream] < _QUANTILE):
            if _is_low(streams, stream, int(block) + 1):
                stops[stream] = block
                break
    canary, control = streams.canary, streams.control
    failing = on_interval_rates(canary.by_block(canary.failed), control.by_block(control.failed))
    first: Ints = np.minimum(stops, failing)
    return first


def on_bad_rates(streams: Streams) -> Ints:
    """Given the share of slow or failed sessions of each interval instead, which may not rise."""
    canary, control = streams.canary, streams.control
    return on_interval_rates(canary.by_block(canary.harmed), control.by_block(control.harmed))


def interval(
    canary: Floats, control: Floats, *, confidence: float = CONFIDENCE
) -> tuple[float, float, float]:
    """Low end, high end and estimate of the shift of the canary against the control."""
    low, high = canary.min() - control.max(), canary.max() - control.min()
    quantile = NormalDist().inv_cdf((1 - confidence) / 2)

    def root(target: float) -> float:
        def score(shift: float) -> float:
            return _tied_score(canary - shift, control) - target

        at_low, at_high = score(low), score(high)
        if target and at_low <= 0:
            return float(low)
        if target and at_high >= 0:
            return float(high)
        return _zero((low, at_low), (high, at_high), score)

    return root(-quantile), root(quantile), root(0.0)


def _tied_score(canary: Floats, control: Floats) -> float:
    """The z of Mann and Whitney's test with ties, continuity corrected towards zero."""
    n, m = len(canary), len(control)
    _, group, num_tied = np.unique(
        np.concatenate([canary, control]), return_inverse=True, return_counts=True
    )
    ranks = (num_tied.cumsum() - (num_tied - 1) / 2)[group]
    off = ranks[:n].sum() - n * (n + 1) / 2 - n * m / 2
    ties = (num_tied.astype(float) ** 3 - num_tied).sum() / ((n + m) * (n + m - 1))
    return float((off - 0.5 * np.sign(off)) / sqrt(n * m / 12 * (n + m + 1 - ties)))


def _zero(
    low: tuple[float, float], high: tuple[float, float], function: Callable[[float], float]
) -> float:
    """Brent's method in the form that the judge has; its accuracy is part of its verdicts."""
    (a, at_a), (b, at_b) = low, high
    if at_a == 0:
        return a
    if at_b == 0:
        return b
    c, at_c = a, at_a
    for _ in range(_NUM_ROUNDS):
        before = b - a
        if abs(at_c) < abs(at_b):
            a, b, c = b, c, b
            at_a, at_b, at_c = at_b, at_c, at_b
        least = 2 * np.finfo(float).eps * abs(b) + _ACCURACY / 2
        step = (c - b) / 2
        if abs(step) <= least or at_b == 0:
            return b
        if abs(before) >= least and abs(at_a) > abs(at_b):
            step = _interpolated((a, at_a), (b, at_b), (c, at_c), (before, step, least))
        if abs(step) < least:
            step = least if step > 0 else -least
        a, at_a = b, at_b
        b += step
        at_b = function(b)
        if (at_b > 0) == (at_c > 0) and at_b and at_c:
            c, at_c = a, at_a
    return b


def _interpolated(
    a: tuple[float, float],
    b: tuple[float, float],
    c: tuple[float, float],
    steps: tuple[float, float, float],
) -> float:
    """A secant or inverse quadratic step where it stays within bounds, else the halving."""
    before, halving, least = steps
    width = c[0] - b[0]
    if a[0] == c[0]:
        ratio = b[1] / a[1]
        p, q = width * ratio, 1 - ratio
    else:
        q, r, s = a[1] / c[1], b[1] / c[1], b[1] / a[1]
        p = s * (width * q * (q - r) - (b[0] - a[0]) * (r - 1))
        q = (q - 1) * (r - 1) * (s - 1)
    p, q = (p, -q) if p > 0 else (-p, q)
    is_within = p < 0.75 * width * q - abs(least * q) / 2 and p < abs(before * q / 2)
    return p / q if is_within else halving


def _score(above: Floats, n: Ints, m: Ints) -> Floats:
    off = above - n * m / 2
    score: Floats = (off - 0.5 * np.sign(off)) / np.sqrt(n * m / 12 * (n + m + 1))
    return score


def _rate_scores(streams: Streams) -> Floats:
    """z of canary against control frame rates at every look; who failed is left out."""
    scores = np.zeros((streams.num_streams, NUM_BLOCKS))
    at_once = 25  # streams: what fits into the cache of a processor
    for start in range(0, streams.num_streams, at_once):
        rows = slice(start, start + at_once)
        canary, control = streams.canary.fps[rows], streams.control.fps[rows]
        shape = len(canary), NUM_BLOCKS
        above = (canary[:, :, None] > control[:, None, :]).reshape(*shape, CANARY, -1)
        by_block = above.sum(2, dtype=np.uint8).reshape(*shape, NUM_BLOCKS, CONTROL)
        pairs = by_block.sum(3, dtype=np.int32).cumsum(1).cumsum(2)
        so_far = np.diagonal(pairs, axis1=1, axis2=2)
        n, m = (
            (~np.isnan(fps)).reshape(len(fps), NUM_BLOCKS, -1).sum(2).cumsum(1)
            for fps in (canary, control)
        )
        scores[rows] = _score(so_far, n, m)
    return scores


def _is_low(streams: Streams, stream: int, num_blocks: int) -> bool:
    """Whether the shift is below zero by more than the tolerance."""
    canary = streams.canary.fps[stream, : num_blocks * CANARY]
    control = streams.control.fps[stream, : num_blocks * CONTROL]
    canary = canary[~np.isnan(canary)]
    control = np.sort(control[~np.isnan(control)])
    tolerated = TOLERANCE * abs(_median_shift(canary, control))
    above = np.array(np.searchsorted(control, canary + tolerated).sum())
    return bool(_score(above, np.array(len(canary)), np.array(len(control))) < _QUANTILE)


def _median_shift(canary: Floats, control: Floats) -> float:
    """Hodges and Lehmann's estimate, by halving to the judge's accuracy; `control` is sorted."""
    low, high = canary.min() - control[-1], canary.max() - control[0]
    half = len(canary) * len(control) / 2
    middle = (low + high) / 2
    while high - low >= _ACCURACY:
        is_above = np.searchsorted(control, canary - middle).sum() > half
        low, high = (middle, high) if is_above else (low, middle)
        middle = (low + high) / 2
    return float(middle)


def on_interval_rates(canary_bad: Ints, control_bad: Ints) -> Ints:
    """The judge on one point an interval and arm, which may not rise.

    Where the estimate is exactly 0 the judge decides by the rounding of its root finder; here by z,
    in its favour.
    """
    per = CONTROL // CANARY  # rates in units of one control session
    n = np.broadcast_to(np.arange(1, NUM_BLOCKS + 1), canary_bad.shape)
    of_canary = (canary_bad[:, :, None] == np.arange(CANARY + 1)).cumsum(1)
    of_control = (control_bad[:, :, None] == np.arange(CONTROL + 1)).cumsum(1)
    pairs = np.zeros((*canary_bad.shape, 2 * CONTROL + 1))  # by difference, from -CONTROL
    for bad in range(CANARY + 1):
        here = slice(per * bad, per * bad + CONTROL + 1)
        pairs[:, :, here] += of_canary[:, :, bad : bad + 1] * of_control[:, :, ::-1]
    tolerated = TOLERANCE * np.abs(_median_difference(pairs, n))
    difference = np.arange(-CONTROL, CONTROL + 1)
    above = (pairs * (difference > tolerated[:, :, None])).sum(2)
    above += 0.5 * (pairs * (difference == tolerated[:, :, None])).sum(2)
    ties = _ties(of_canary, of_control, per, tolerated == np.floor(tolerated))
    variance = n * n / 12 * (2 * n + 1 - ties / (2 * n * np.maximum(2 * n - 1, 1)))
    off = above - n * n / 2
    z = (off - 0.5 * np.sign(off)) / np.sqrt(np.maximum(variance, 1e-12))
    hits = (z > -_QUANTILE) & (variance > 1e-9) & (n >= 2)
    return np.where(hits.any(1), hits.argmax(1), NUM_BLOCKS)


def _median_difference(pairs: Floats, n: Ints) -> Floats:
    so_far, half = pairs.cumsum(2), n[:, :, None] ** 2 / 2
    middle: Floats = ((so_far >= half).argmax(2) + (so_far > half).argmax(2)) / 2 - CONTROL
    return middle


def _ties(of_canary: Ints, of_control: Ints, per: int, is_on_grid: Ints) -> Floats:
    """The sum of t^3 - t: over both arms together if the tolerance keeps them on one grid."""
    together = of_control.astype(float)
    together[:, :, ::per] += of_canary
    apart = _cubes(of_canary.astype(float)) + _cubes(of_control.astype(float))
    return np.where(is_on_grid, _cubes(together), apart)


def _cubes(num_tied: Floats) -> Floats:
    cubes: Floats = (num_tied**3 - num_tied).sum(2)
    return cubes
