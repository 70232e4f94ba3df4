"""Our rule, through the product's own domain: blocks are folded into e-values one after another.

`Evidence` keeps what `comparison.regression` computes from all blocks anew at each look; a test
holds the one against the other.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from math import fsum
from typing import Final, Self

import numpy as np

from controlplane.domain import eprocess
from controlplane.domain.blocks import FAILED, SHIFT, SLOW, Block, Kind, ranked
from controlplane.domain.comparison import Weights
from controlplane.domain.eprocess import QUANTILES, Mixture, Table
from tests.bench.decision import counts as counting
from tests.bench.decision.counts import AllCounts, Counts
from tests.bench.decision.streams import Floats, Ints

# Rollback at 1 / alpha: at most 1 % of healthy canaries, however long one looks.
THRESHOLD: Final = 100.0
HOLD: Final = 10.0
_RANKS: Final = tuple(ranked(SHIFT, quantile) for quantile in QUANTILES)
_STARTS: Final[Mapping[str, Mixture]] = {name: Mixture() for name in (SLOW, FAILED, *_RANKS)}


@dataclass(frozen=True, slots=True)
class Evidence:
    """The e-processes of one canary after some blocks."""

    mixtures: Mapping[str, Mixture] = field(default_factory=lambda: _STARTS)

    def after(self, block: Block) -> Self:
        """The state after one more block of either kind."""
        names = (FAILED,) if block.kind is Kind.FAILURES else (SLOW, *_RANKS)
        changed = {name: self.mixtures[name].after(block.tables.get(name, ())) for name in names}
        return type(self)({**self.mixtures, **changed})

    def value(self, weights: Weights) -> float:
        """The weighted mean that rollback looks at."""
        values = {
            SLOW: self.mixtures[SLOW].value,
            FAILED: self.mixtures[FAILED].value,
            SHIFT: fsum(self.mixtures[name].value for name in _RANKS) / len(_RANKS),
        }
        return eprocess.combined((weight, values[name]) for name, weight in weights.of().items())


def e_values(windows: Iterable[tuple[Block, ...]], weights: Weights) -> Iterator[float]:
    """The e-value after each window's blocks."""
    evidence = Evidence()
    for written in windows:
        for block in written:
            evidence = evidence.after(block)
        yield evidence.value(weights)


def first_at_least(values: Iterable[float], threshold: float) -> int | None:
    """The index of the first value that reaches a threshold."""
    return next((index for index, value in enumerate(values) if value >= threshold), None)


def stops(counts: AllCounts, *, threshold: float = THRESHOLD) -> Ints:
    """For each stream the block after which it is rolled back; the number of blocks if never."""
    num_streams, num_blocks = counts[SLOW][0].canary_bad.shape
    weights = Weights()
    found = (
        first_at_least(e_values(counting.blocks(counts, stream), weights), threshold)
        for stream in range(num_streams)
    )
    return np.array([num_blocks if stop is None else stop for stop in found], dtype=np.int64)


# What follows is the same fold for all streams at once, on the domain's factors: for horizons of
# 8,000 sessions and for stakes that the domain does not take. Tests hold it against the domain.


@dataclass(frozen=True, slots=True, kw_only=True)
class Stakes:
    """What bets from the first block on; of what is left, what joins with each later one."""

    first: float = eprocess.FIRST_STAKE  # in (0, 1]
    later: float = eprocess.LATER_STAKE  # in [0, 1)


DOMAIN_STAKES: Final = Stakes()


def mixture(
    strata: Iterable[Counts], stakes: Stakes = DOMAIN_STAKES, *, skips_empty: bool = False
) -> Floats:
    """The e-value of one indicator, a row a stream and a column a block.

    Args:
        strata: counts of the indicator in each stratum.
        stakes: those of the domain, or others.
        skips_empty: whether a block without anyone bad is none, as for failures in the product.
    """
    strata = list(strata)
    factors = np.exp(np.sum([_log_factors(counts) for counts in strata], axis=0))
    num_streams, num_blocks, num_ratios = factors.shape
    num_bad: Ints = np.sum([one.canary_bad + one.control_bad for one in strata], axis=0)
    is_block = num_bad > 0 if skips_empty else np.ones(num_bad.shape, dtype=bool)
    wealth, reserve = np.zeros((num_streams, num_ratios)), np.ones(num_streams)
    values = np.empty((num_streams, num_blocks))
    for index in range(num_blocks):
        stake = np.where(reserve == 1.0, stakes.first, reserve * stakes.later) * is_block[:, index]
        reserve = reserve - stake
        wealth = np.minimum((wealth + stake[:, None]) * factors[:, index], 1e250)
        values[:, index] = wealth.mean(1) + reserve
    return values


def of_sessions(counts: AllCounts, stakes: Stakes = DOMAIN_STAKES) -> dict[str, Floats]:
    """The e-values of the indicators that windows of sessions tell of."""
    shift: Floats = np.mean([mixture(counts[name], stakes) for name in _RANKS], axis=0)
    return {SLOW: mixture(counts[SLOW], stakes), SHIFT: shift}


def combined(counts: AllCounts, weights: Weights) -> Floats:
    """The weighted mean over the product's indicators, a row a stream and a column a block."""
    return total({**of_sessions(counts), FAILED: mixture(counts[FAILED])}, weights)


def total(of_indicator: Mapping[str, Floats], weights: Weights) -> Floats:
    """The weighted mean of e-values that are there already."""
    parts = [weight * of_indicator[name] for name, weight in weights.of().items()]
    mean: Floats = np.sum(parts, axis=0) / sum(weights.of().values())
    return mean


def crossed(values: Floats, threshold: float) -> Ints:
    """The first column that reaches a threshold, a row a stream; the number of columns if none."""
    hits = values >= threshold
    first: Ints = np.where(hits.any(1), hits.argmax(1), hits.shape[1])
    return first


def _log_factors(counts: Counts) -> Floats:
    """Of each block, for each odds ratio, from the domain's own."""
    shape = (*counts.canary_bad.shape, len(eprocess.ODDS_RATIOS))
    logs = np.zeros(shape)
    sizes = np.stack([counts.canary, counts.control])
    for canary, control in np.unique(sizes, axis=1).T.tolist():
        if canary and control:
            here = (counts.canary == canary) & (counts.control == control)
            of_table = _of_tables(canary, control)
            logs[:, here] = of_table[counts.canary_bad[:, here], counts.control_bad[:, here]]
    return logs


@cache
def _of_tables(canary: int, control: int) -> Floats:
    return np.array(
        [
            [
                [
                    eprocess.log_factor(Table(canary_bad, canary, control_bad, control), ratio)
                    for ratio in eprocess.ODDS_RATIOS
                ]
                for control_bad in range(control + 1)
            ]
            for canary_bad in range(canary + 1)
        ]
    )
