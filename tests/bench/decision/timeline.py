"""When the sessions of a stream begin, are judged and end, on a fleet of a stated size.

The fleet (assumed, for the source gives no such figures): 100 workers, half of them busy, sessions
of 5 minutes on average (log-normal, sigma 1: many short, a few of half an hour), so 10 starts a
minute, a Poisson stream. One of each five starts in a row, at random, is the canary's.
"""

from dataclasses import dataclass
from math import log
from typing import Final, Self

import numpy as np

from tests.bench.decision.streams import CANARY, CONTROL, Bools, Floats, Ints, Streams

STARTS_A_MINUTE: Final = 10.0
MEAN_S: Final = 300.0
SIGMA: Final = 1.0
# Of streaming: an outcome is fixed then, if the session has not ended before.
HORIZON_S: Final = 120.0
_SEED: Final = 20261201
_RATIO: Final = CONTROL // CANARY


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmTimes:
    """Seconds since the first start, a row a stream, in the order of starts."""

    started_s: Floats
    judged_s: Floats  # its rate is final, or its failure known
    ended_s: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Both arms of every stream of one scenario."""

    canary: ArmTimes
    control: ArmTimes

    def known_s(self, *, num_parts: int = 1) -> Floats:
        """When each block is judged whole and can be written, after all before it."""
        num_streams = len(self.canary.judged_s)
        by_block = [
            times.judged_s.reshape(num_streams, -1, size // num_parts).max(2)
            for times, size in ((self.canary, CANARY), (self.control, CONTROL))
        ]
        known: Floats = np.maximum.accumulate(np.maximum(*by_block), axis=1)
        return known


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What rolling back at one moment of each stream costs, a number a stream."""

    is_rolled_back: Bools
    minutes: Floats  # since the first start
    num_started: Ints  # canary sessions by then
    num_harmed: Ints  # of them, harmed in the end
    num_running: Ints  # of them, still running when it acts
    num_running_harmed: Ints

    @classmethod
    def of(cls, streams: Streams, times: ArmTimes, stopped_s: Floats) -> Self:
        """Of a rule that acts in each stream at a moment; infinity: never, all sessions count."""
        at_s = stopped_s[:, None]
        has_started = times.started_s <= at_s
        is_running = has_started & (times.ended_s > at_s)
        harmed = streams.canary.harmed
        return cls(
            is_rolled_back=np.isfinite(stopped_s),
            minutes=stopped_s / 60,
            num_started=has_started.sum(1),
            num_harmed=(has_started & harmed).sum(1),
            num_running=is_running.sum(1),
            num_running_harmed=(is_running & harmed).sum(1),
        )


def drawn(streams: Streams, *, seed: int) -> Timeline:
    """Draw when the sessions of a scenario begin and how long they last.

    A session that fails does so at a moment of its judged time, all alike: its failure is known at
    once. A slow one lasts as long as any other.
    """
    randomness = np.random.default_rng([seed, _SEED])
    num_streams, num_canary = streams.canary.slow.shape
    gaps_s = randomness.exponential(60 / STARTS_A_MINUTE, (num_streams, num_canary, 1 + _RATIO))
    started_s = gaps_s.reshape(num_streams, -1).cumsum(1).reshape(gaps_s.shape)
    started_s -= started_s[:, :1, :1]
    place = randomness.integers(0, 1 + _RATIO, (num_streams, num_canary, 1))
    is_canary = np.arange(1 + _RATIO) == place
    canary = started_s[is_canary].reshape(num_streams, -1)
    control = started_s[~is_canary].reshape(num_streams, -1)
    return Timeline(
        canary=_times(randomness, canary, streams.canary.failed),
        control=_times(randomness, control, streams.control.failed),
    )


def _times(randomness: np.random.Generator, started_s: Floats, failed: Bools) -> ArmTimes:
    # The mean of a log-normal is exp(mu + sigma^2 / 2).
    mu = log(MEAN_S) - SIGMA**2 / 2
    lasts_s = randomness.lognormal(mu, SIGMA, started_s.shape)
    judged_after_s = np.minimum(lasts_s, HORIZON_S)
    fails_after_s = judged_after_s * randomness.random(started_s.shape)
    lasts_s = np.where(failed, fails_after_s, lasts_s)
    return ArmTimes(
        started_s=started_s,
        judged_s=started_s + np.minimum(lasts_s, HORIZON_S),
        ended_s=started_s + lasts_s,
    )


def at(known_s: Floats, stops: Ints) -> Floats:
    """The moment at which each stream's stop block is known; infinity where there is none."""
    padded = np.concatenate([known_s, np.full((len(known_s), 1), np.inf)], axis=1)
    moments: Floats = np.take_along_axis(padded, stops[:, None], axis=1)[:, 0]
    return moments
