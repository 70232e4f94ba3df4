"""What a policy would do at a fleet's traffic, before anybody meets a variant.

Streams of healthy sessions are drawn and judged by the same folds that judge a canary: how often a
healthy one would be rolled back, and how many sessions it takes to promote it.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import accumulate
from math import ceil, comb, exp, expm1, inf, lgamma, log, log1p
from statistics import median
from typing import Final

from controlplane.domain import comparison
from controlplane.domain.blocks import FAILED, SHIFT, SLOW, Block, Kind, ranked
from controlplane.domain.eprocess import QUANTILES, Table
from controlplane.domain.noninferiority import NonInferiority
from controlplane.domain.policy import Policy, RegressionGate, Step

_LEAST_CANARY: Final = 5  # in a block that is drawn
_MOST_CANARY: Final = 100  # likewise: a larger one is drawn as several
_MOST_BLOCKS: Final = 1000  # of a stream, so that an answer comes in any case
# Draws a number in [0, 1); the domain makes none of its own.
Draw = Callable[[], float]
_AT: Final = datetime(1970, 1, 1, tzinfo=UTC)  # no fold reads when a block was open


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a fleet serves, as far as a rehearsal needs to know."""

    num_workers: int  # of one hardware and stack
    sessions_per_day: float  # that begin on them, together
    slow_rate: float  # of rated sessions, in [0, 1)
    failure_rate: float  # of sessions started, in [0, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One block of sessions at this traffic."""

    canary: int
    control: int
    lasts: timedelta  # that so many sessions take to begin


def shape(policy: Policy, step: Step, served: Traffic) -> Shape | None:
    """The block that the step closes on average; None where it has nobody to compare with."""
    num_exposed = step.workers.of(served.num_workers)
    if not num_exposed or not 0 < step.arm_share < 1 or served.sessions_per_day <= 0:
        return None
    per_day = served.sessions_per_day * num_exposed / served.num_workers
    in_block = per_day * (policy.limits.block / timedelta(days=1))
    # Where few canary sessions begin in a block, several blocks are drawn as one.
    canary = min(_MOST_CANARY, max(_LEAST_CANARY, round(in_block * step.arm_share)))
    control = max(1, round(canary * (1 - step.arm_share) / step.arm_share))
    lasts = timedelta(days=canary / step.arm_share / per_day)
    return Shape(canary=canary, control=control, lasts=lasts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Healthy canaries to draw: both arms are as slow, and fail as often, as the fleet does."""

    shape: Shape
    served: Traffic
    num: int
    draw: Draw


def false_rollbacks(gate: RegressionGate, streams: Streams, *, num_sessions: int) -> float:
    """Share of healthy canaries that the gate rolls back within so many canary sessions."""
    num_blocks = ceil(num_sessions / streams.shape.canary)
    num_hits = 0
    for _ in range(streams.num):
        found = comparison.regression(_healthy(streams, num_blocks), gate.weights)
        num_hits += max(found.trajectory) >= gate.at_most
    return num_hits / streams.num


def sessions_to_promote(
    streams: Streams, *, margin: float, at_least: float, most: int
) -> int | None:
    """Median canary sessions until a healthy canary is shown to be no worse, in both guardrails.

    Returns: None where at least half of the streams had not shown it after `most` sessions.
    """
    needed: list[float] = []
    for _ in range(streams.num):
        needed.append(_until_shown(streams, margin=margin, at_least=at_least, most=most))
        if needed.count(inf) * 2 > streams.num:
            return None  # half of all cannot come to it any more
    middle = median(needed)
    return None if middle > most else ceil(middle)


def _until_shown(streams: Streams, *, margin: float, at_least: float, most: int) -> float:
    shape, served = streams.shape, streams.served
    states = [
        (chance, NonInferiority(margin=margin))
        for chance in (served.slow_rate, served.failure_rate)
    ]
    num = 0
    for _ in range(min(_MOST_BLOCKS, most // shape.canary + 1)):
        num += shape.canary
        states = [
            (chance, state.after(_table(shape, chance, streams.draw))) for chance, state in states
        ]
        if all(state.value >= at_least for _, state in states):
            return num
    return inf


def share_compared(policy: Policy, step: Step, served: Traffic) -> float:
    """The share of windows in which a session begins in each arm, starts being Poisson."""
    num_exposed = step.workers.of(served.num_workers)
    per_day = served.sessions_per_day * num_exposed / served.num_workers
    in_block = per_day * (policy.limits.block / timedelta(days=1))
    has_canary = -expm1(-in_block * step.arm_share)
    return has_canary * -expm1(-in_block * (1 - step.arm_share))


def _healthy(streams: Streams, num_blocks: int) -> Iterator[Block]:
    """Blocks in which both arms do alike."""
    shape, served, draw = streams.shape, streams.served, streams.draw
    num_all = shape.canary + shape.control
    for index in range(num_blocks):
        tables = {
            SLOW: (_table(shape, served.slow_rate, draw),),
            **{
                ranked(SHIFT, quantile): (_worst(shape, int(quantile * num_all), draw),)
                for quantile in QUANTILES
            },
        }
        yield _block(Kind.SESSIONS, index, tables)
        failed = _table(shape, served.failure_rate, draw)
        if failed.canary_bad or failed.control_bad:
            yield _block(Kind.FAILURES, index, {FAILED: (failed,)})


def _block(kind: Kind, index: int, tables: Mapping[str, tuple[Table, ...]]) -> Block:
    return Block(
        kind=kind, index=index, opened_at=_AT, closed_at=_AT, arms={}, tables=tables, sessions=()
    )


def _table(shape: Shape, chance: float, draw: Draw) -> Table:
    return Table(
        _drawn(_binomial(shape.canary, chance), draw),
        shape.canary,
        _drawn(_binomial(shape.control, chance), draw),
        shape.control,
    )


def _worst(shape: Shape, num_worst: int, draw: Draw) -> Table:
    """How the worst-ranked of a block divide between two arms that do alike."""
    if num_worst < 1:
        return Table(0, 0, 0, 0)
    canary = _drawn(_hypergeometric(shape.canary, shape.control, num_worst), draw)
    return Table(canary, shape.canary, num_worst - canary, shape.control)


def _drawn(cumulative: Sequence[float], draw: Draw) -> int:
    return min(bisect_left(cumulative, draw()), len(cumulative) - 1)


@lru_cache(maxsize=256)
def _binomial(num: int, chance: float) -> tuple[float, ...]:
    """Cumulative chances of 0, 1, ... of `num`."""
    if chance <= 0:
        return (1.0,)
    # In logarithms: of a large fleet the coefficients are beyond a float.
    logs = (
        lgamma(num + 1)
        - lgamma(k + 1)
        - lgamma(num - k + 1)
        + k * log(chance)
        + (num - k) * log1p(-chance)
        for k in range(num + 1)
    )
    return tuple(accumulate(exp(one) for one in logs))


@lru_cache(maxsize=256)
def _hypergeometric(canary: int, control: int, taken: int) -> tuple[float, ...]:
    """Cumulative chances that 0, 1, ... of `taken` from both are of the canary."""
    all_ways = comb(canary + control, taken)
    # Whole numbers divide exactly, however large they are.
    return tuple(
        accumulate(
            comb(canary, k) * comb(control, taken - k) / all_ways if taken >= k else 0.0
            for k in range(canary + 1)
        )
    )
