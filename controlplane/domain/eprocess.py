"""Evidence that a canary does worse than its control, valid however often one looks.

A block is what started in one window. Given its number of bad sessions, exchangeable arms make
the canary's share of them hypergeometric: only the odds ratio matters, no rate is assumed, and a
bad week hits both arms alike. The product over blocks is a test supermartingale under "no odds
ratio is above 1", so it ever reaches 1 / alpha with a probability of at most alpha (Ville).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, floor, fsum, inf, isnan, lgamma, log
from typing import Final, Self

# Odds ratios that are bet on, with equal weights: 0.7 % against 2 %, 5 % and 15 %.
ODDS_RATIOS: Final = (3.0, 8.0, 25.0)
# Of the wealth, what bets from the first block on; of the rest, what joins with each later block,
# so that a fault that begins late is not judged by the good time before it.
FIRST_STAKE: Final = 0.7
LATER_STAKE: Final = 0.05
# Of the pooled sessions of a block, those ranked worst that a shift is looked for in.
QUANTILES: Final = (0.1, 0.25, 0.5)
# Evidence is over long before; beyond it floats would overflow.
_MOST: Final = 1e250


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """Bad and all units of both arms in one stratum of one block."""

    canary_bad: int
    canary: int
    control_bad: int
    control: int

    def __post_init__(self) -> None:
        assert 0 <= self.canary_bad <= self.canary, f"{self.canary_bad} of {self.canary} bad"
        assert 0 <= self.control_bad <= self.control, f"{self.control_bad} of {self.control} bad"

    @property
    def is_telling(self) -> bool:
        """Whether it multiplies a bet by anything but 1: both arms, and not all of them alike."""
        num_bad = self.canary_bad + self.control_bad
        return self.is_comparison and 0 < num_bad < self.canary + self.control

    @property
    def is_comparison(self) -> bool:
        """Whether both arms have anyone: else it is no evidence, for or against."""
        return self.canary > 0 and self.control > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """The e-process of one indicator: a mixture over odds ratios and over the block it begins with.

    Frozen: `after` gives the next state, so that the state is a fold over recorded blocks.
    """

    wealth: tuple[float, ...] = (0.0,) * len(ODDS_RATIOS)  # staked, by odds ratio
    reserve: float = 1.0  # not staked yet
    num_blocks: int = 0

    @property
    def value(self) -> float:
        """The e-value: 1 at the start, and without evidence."""
        return fsum(self.wealth) / len(self.wealth) + self.reserve

    def after(self, strata: Iterable[Table]) -> Self:
        """The state after one more block, its strata being independent draws of the arms."""
        tables = [table for table in strata if table.is_telling]
        stake = FIRST_STAKE if self.num_blocks == 0 else self.reserve * LATER_STAKE
        return type(self)(
            wealth=tuple(
                min((old + stake) * _factor(tables, odds_ratio), _MOST)
                for old, odds_ratio in zip(self.wealth, ODDS_RATIOS, strict=True)
            ),
            reserve=self.reserve - stake,
            num_blocks=self.num_blocks + 1,
        )


def evidence(blocks: Iterable[Sequence[Table]]) -> float:
    """The e-value of blocks in the order they opened."""
    state = Mixture()
    for strata in blocks:
        state = state.after(strata)
    return state.value


def _factor(tables: Sequence[Table], odds_ratio: float) -> float:
    return exp(min(fsum(log_factor(table, odds_ratio) for table in tables), log(_MOST)))


@lru_cache(maxsize=2**16)
def log_factor(table: Table, odds_ratio: float) -> float:
    """Natural logarithm of OR^a / E[OR^X], X hypergeometric: what one block multiplies the bet by.

    Its mean is 1 under exchangeable arms and at most 1 where the canary does better (Fisher's
    noncentral hypergeometric has a monotone likelihood ratio).
    """
    num_all = table.canary + table.control
    num_bad = table.canary_bad + table.control_bad
    least = max(0, num_bad - table.control)
    most = min(table.canary, num_bad)
    if least == most:  # nobody bad, or everybody: exactly nothing is learnt
        return 0.0
    logs = [
        _log_choose(table.canary, bad)
        + _log_choose(table.control, num_bad - bad)
        - _log_choose(num_all, num_bad)
        + bad * log(odds_ratio)
        for bad in range(least, most + 1)
    ]
    largest = max(logs)
    mean = largest + log(fsum(exp(one - largest) for one in logs))
    return table.canary_bad * log(odds_ratio) - mean


def worst_ranked(
    canary: Sequence[float | None], control: Sequence[float | None], *, quantile: float
) -> Table:
    """How the worst-ranked share of a pooled block divides between the arms.

    Args:
        canary: a number a session, lower is worse; None for a failed session, which ranks worst
            (else an arm whose sessions die would look faster for it). NaN ranks worst, too: it is
            below nothing and would leave the others unsorted.
        control: likewise.
        quantile: of the pooled block, in (0, 1]; below one session there is nothing to compare.
    """
    ranked = [[_rank(one) for one in arm] for arm in (canary, control)]
    pooled = sorted(ranked[0] + ranked[1])
    num_worst = floor(quantile * len(pooled))
    if num_worst < 1:
        return Table(0, 0, 0, 0)
    threshold = pooled[num_worst - 1]  # ties with it count in both arms
    bad = [sum(one <= threshold for one in arm) for arm in ranked]
    return Table(bad[0], len(canary), bad[1], len(control))


def combined(e_values: Iterable[tuple[float, float]]) -> float:
    """Weighted mean of (weight, e-value) pairs: valid under any dependence (Vovk, Wang 2021)."""
    pairs = list(e_values)
    return fsum(weight * value for weight, value in pairs) / fsum(weight for weight, _ in pairs)


def _log_choose(num: int, taken: int) -> float:
    return lgamma(num + 1) - lgamma(taken + 1) - lgamma(num - taken + 1)


def _rank(value: float | None) -> float:
    return -inf if value is None or isnan(value) else value
