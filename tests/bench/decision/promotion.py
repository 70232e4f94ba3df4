"""How many canary sessions it takes to promote a healthy canary, and how often a worse one is.

By the domain's `NonInferiority`, block by block. What a block adds depends on few numbers, so each
such block is asked of the domain once.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import log
from typing import Final

import numpy as np

from controlplane.domain import rates
from controlplane.domain.eprocess import Table
from controlplane.domain.noninferiority import NonInferiority
from tests.bench.decision.streams import CANARY, CONTROL, SLOW_RATE, Floats, Ints

NUM_BLOCKS: Final = 800  # 8,000 canary sessions
MARGINS: Final = (0.01, 0.02, 0.03)
PROMOTES_AT: Final = 20.0  # 1 / alpha: at most 5 % false promotions
_SEED: Final = 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion:
    """Of one margin."""

    margin: float
    median_sessions: float  # of the canary, where both arms have the same rate
    p80_sessions: float
    within_400: float  # share of runs
    false_rate: float  # share of runs promoted, where the canary is worse by just the margin
    false_rate_most: float  # upper end of its 95 % interval


def measured(num_streams: int) -> Iterator[Promotion]:
    """For each margin, at the published rate of slow sessions."""
    randomness = np.random.default_rng([_SEED, int(SLOW_RATE * 1e4)])
    shape = (num_streams, NUM_BLOCKS)
    healthy = randomness.binomial(CANARY, SLOW_RATE, shape)
    control = randomness.binomial(CONTROL, SLOW_RATE, shape)
    for margin in MARGINS:
        worse = randomness.binomial(CANARY, SLOW_RATE + margin, shape)
        sessions = CANARY * (promoted(healthy, control, margin=margin) + 1.0)
        num_false = int((promoted(worse, control, margin=margin) < NUM_BLOCKS).sum())
        yield Promotion(
            margin=margin,
            median_sessions=float(np.median(sessions)),
            p80_sessions=float(np.quantile(sessions, 0.8)),
            within_400=float((sessions <= 400).mean()),
            false_rate=num_false / num_streams,
            false_rate_most=rates.upper_bound(num_false, num_streams, alpha=0.025),
        )


def promoted(canary_bad: Ints, control_bad: Ints, *, margin: float) -> Ints:
    """The block at which each stream is promoted; the number of blocks if it never is."""
    stops = np.full(len(canary_bad), canary_bad.shape[1])
    so_far = np.zeros(len(canary_bad), dtype=np.int64)
    values = np.zeros(len(canary_bad))
    for index in range(canary_bad.shape[1]):
        values += _gains(index, so_far, (canary_bad[:, index], control_bad[:, index]), margin)
        reached = (values >= log(PROMOTES_AT)) & (stops == canary_bad.shape[1])
        stops[reached] = index
        so_far += canary_bad[:, index] + control_bad[:, index]
    return stops


def _gains(index: int, so_far: Ints, bad: Sequence[Ints], margin: float) -> Floats:
    keys = np.stack([so_far, *bad])
    unique, inverse = np.unique(keys, axis=1, return_inverse=True)
    gains = [_gain(margin, index, *numbers) for numbers in unique.T.tolist()]
    return np.array(gains)[inverse.reshape(-1)]


@cache
def _gain(margin: float, num_blocks: int, num_bad: int, canary_bad: int, control_bad: int) -> float:
    state = NonInferiority(margin=margin, num_bad=num_bad, num_all=num_blocks * (CANARY + CONTROL))
    return state.after(Table(canary_bad, CANARY, control_bad, CONTROL)).log_value
