"""How others decide, re-implemented from what their documentation and code say they do.

Argo Rollouts 9f8d111, Flagger 15bd6ad; Kayenta is in `kayenta.py`. Each gets the same sessions in
the same intervals, and slow or failed sessions as its metric, with the delays of its own ticks and
queries left out: all in its favour. Each rule gives, for each stream, the interval at whose end it
rolls back, or the number of intervals if it never does.
"""

from collections.abc import Callable
from math import lgamma, sqrt
from statistics import NormalDist
from typing import Final

import numpy as np

from tests.bench.decision.streams import NUM_BLOCKS, Bools, Floats, Ints, Streams

_NORMAL: Final = NormalDist()


def floor(streams: Streams) -> Ints:
    """The published rule: every session of the canary averages 24 fps or more, or it goes back."""
    slow = streams.canary.by_block(streams.canary.slow)
    return _first(slow >= 1)


def total(streams: Streams, *, at_least: int) -> Ints:
    """A fixed threshold: so many bad sessions in all."""
    return _first(_bad(streams).cumsum(1) >= at_least)


def intervals(
    streams: Streams, *, num_bad: int = 1, num_failed: int, consecutive: bool = False
) -> Ints:
    """The n-th failed interval rolls back; one has failed with so many bad sessions or more.

    One bad session of ten is under any success rate of 90 to 99 % that the documentation shows.
    Argo: `failed > failureLimit`, so its default of 0 is `num_failed=1`, its example of 3 is 4.
    Flagger counts failed checks and never resets them by a good one.
    """
    failed = _bad(streams) >= num_bad
    if not consecutive:
        return _first(failed.cumsum(1) >= num_failed)
    # The length of the run of failures that ends at each interval.
    index = np.arange(1, failed.shape[1] + 1)
    last_good = np.maximum.accumulate(np.where(failed, 0, index), axis=1)
    return _first(index - last_good >= num_failed)


def fisher(streams: Streams, *, level: float) -> Ints:
    """Fisher's exact test of all sessions so far, at every look, below a level."""
    canary_bad, all_bad, canary, everyone = _so_far(streams)
    keys = np.stack([canary_bad, all_bad, np.broadcast_to(canary, all_bad.shape)]).reshape(3, -1)
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    ratio = int(everyone[0] // canary[0])
    tails = [_upper_tail(a, t, n, n * ratio) for a, t, n in unique.T.tolist()]
    return _first(np.array(tails)[inverse.reshape(-1)].reshape(all_bad.shape) < level)


def group_sequential(streams: Streams, *, level: float) -> Ints:
    """A pooled z-test at Lan and DeMets' bounds of linear spending; it must end at 40 looks."""
    bounds = lan_demets(NUM_BLOCKS, lambda share: level * share)
    canary_bad, all_bad, canary, everyone = _so_far(streams)
    control = everyone - canary
    pooled = all_bad / everyone
    error = np.sqrt(pooled * (1 - pooled) * (1 / canary + 1 / control))
    difference = canary_bad / canary - (all_bad - canary_bad) / control
    z = np.divide(difference, error, out=np.zeros(error.shape), where=error > 0)
    return _first(z > bounds)


def lan_demets(num_looks: int, spent: Callable[[Floats], Floats]) -> Floats:
    """One-sided bounds of z at equal steps of information.

    Args:
        num_looks: at the data, evenly spaced.
        spent: of the level, up to each share of the information.

    Source: Lan and DeMets 1983; the integration step by step of Armitage, McPherson, Rowe 1969.
    """
    step, most = 0.01, 8.0
    shares = np.arange(1, num_looks + 1) / num_looks
    to_spend = np.diff(spent(shares), prepend=0.0)
    scores = np.arange(-most, most, step)  # z times the root of the share
    width = 1 / num_looks
    half = int(np.ceil(8 * sqrt(width) / step))
    offsets = np.arange(-half, half + 1, dtype=np.float64) * step
    kernel = _density(offsets, sqrt(width)) * step
    bounds = [_NORMAL.inv_cdf(1 - float(to_spend[0]))]
    alive = _density(scores, sqrt(width)) * _below(bounds[0] * sqrt(width), scores, step)
    for share, need in zip(shares[1:], to_spend[1:], strict=True):
        alive = np.convolve(alive, kernel, mode="same")
        tail = np.cumsum(alive[::-1])[::-1] * step
        index = min(max(int(np.searchsorted(-tail, -need)), 1), len(scores) - 1)
        within = (tail[index - 1] - need) / max(tail[index - 1] - tail[index], 1e-300)
        bound = scores[index - 1] + (within - 0.5) * step
        bounds.append(float(bound / sqrt(share)))
        alive = alive * _below(bound, scores, step)
    return np.array(bounds)


def _density(values: Floats, sigma: float) -> Floats:
    density: Floats = np.exp(-0.5 * (values / sigma) ** 2) / (sigma * sqrt(2 * np.pi))
    return density


def _below(bound: float, scores: Floats, step: float) -> Floats:
    """The share of each cell of the grid that lies below a bound."""
    return np.clip((bound - scores) / step + 0.5, 0, 1)


def _bad(streams: Streams) -> Ints:
    return streams.canary.by_block(streams.canary.harmed)


def _so_far(streams: Streams) -> tuple[Ints, Ints, Ints, Ints]:
    """Bad of the canary, bad of both arms; sessions of the canary, of both: up to each look."""
    canary, control = streams.canary, streams.control
    canary_bad = canary.by_block(canary.harmed).cumsum(1)
    all_bad = canary_bad + control.by_block(control.harmed).cumsum(1)
    looks = np.arange(1, canary_bad.shape[1] + 1)
    return (
        canary_bad,
        all_bad,
        looks * canary.num_a_block,
        looks * (canary.num_a_block + control.num_a_block),
    )


def _upper_tail(canary_bad: int, all_bad: int, canary: int, everyone: int) -> float:
    """The chance of so many bad sessions or more in the canary, all divisions being alike."""
    most = min(canary, all_bad)
    found = np.arange(canary_bad, most + 1)
    control = everyone - canary
    logs = [
        _log_choose(canary, bad) + _log_choose(control, all_bad - bad)
        for bad in found.tolist()
        if all_bad - bad <= control
    ]
    whole = _log_choose(everyone, all_bad)
    return float(np.exp(np.array(logs) - whole).sum())


def _log_choose(num: int, taken: int) -> float:
    return lgamma(num + 1) - lgamma(taken + 1) - lgamma(num - taken + 1)


def _first(hits: Bools) -> Ints:
    first: Ints = np.where(hits.any(1), hits.argmax(1), hits.shape[1])
    return first
