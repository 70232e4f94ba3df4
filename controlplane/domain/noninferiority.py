"""Evidence that a canary is not worse than its control by a margin: what promotion rests on.

"No alarm so far" is no such evidence: a canary of 2 % slow sessions against 0.7 % survives 400
sessions of any valid alarm in most runs. The null hypothesis here is "the canary's rate exceeds the
control's by the margin or more"; the e-variable is Turner and Gruenwald's (2023, section 2,
theorem 2) with the null's nearest point in Kullback-Leibler divergence in the denominator.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import exp, log, log1p
from typing import Final, Self

from controlplane.domain.eprocess import Table

# What is known before the first block, as sessions: 0.7 bad of 100, seven good weeks in production.
PRIOR: Final = (0.7, 99.3)
_LEAST: Final = 1e-12  # from both ends of the interval that the nearest point is looked for in
_NUM_HALVINGS: Final = 60  # to the last bit of a float
_MOST_LOG: Final = 575.0  # e to this is still a float


@dataclass(frozen=True, slots=True, kw_only=True)
class NonInferiority:
    """The e-process against "canary rate >= control rate + margin". Frozen: a fold over blocks."""

    margin: float  # a difference of rates, in (0, 1)
    log_value: float = 0.0
    num_bad: int = 0  # of both arms, in the blocks before
    num_all: int = 0

    @property
    def value(self) -> float:
        """The e-value: promotion asks for 1 / alpha."""
        return exp(min(self.log_value, _MOST_LOG))

    def after(self, table: Table) -> Self:
        """The state after one more block; one with an empty arm changes nothing."""
        if not table.is_comparison:
            return self
        rate = (self.num_bad + PRIOR[0]) / (self.num_all + sum(PRIOR))
        nearest = nearest_null(rate, table.canary, table.control, self.margin)
        num_bad = table.canary_bad + table.control_bad
        num_all = table.canary + table.control
        gained = (
            _log_likelihood(num_bad, num_all, rate)
            - _log_likelihood(table.canary_bad, table.canary, nearest + self.margin)
            - _log_likelihood(table.control_bad, table.control, nearest)
        )
        return type(self)(
            margin=self.margin,
            log_value=self.log_value + gained,
            num_bad=self.num_bad + num_bad,
            num_all=self.num_all + num_all,
        )


def evidence(tables: Iterable[Table], *, margin: float) -> float:
    """The e-value of blocks in the order they were written, for one margin."""
    return folded(tables, margin=margin).value


def folded(tables: Iterable[Table], *, margin: float) -> NonInferiority:
    """The state after blocks in the order they were written, for one margin."""
    state = NonInferiority(margin=margin)
    for table in tables:
        state = state.after(table)
    return state


@lru_cache(maxsize=2**14)
def nearest_null(rate: float, canary: int, control: int, margin: float) -> float:
    """The control rate y whose pair (y + margin, y) is nearest to (rate, rate): found by bisection.

    Args:
        rate: of both arms, as bet on, in (0, 1).
        canary: sessions of the block.
        control: likewise.
        margin: in (0, 1).
    """
    low, high = _LEAST, 1 - margin - _LEAST
    for _ in range(_NUM_HALVINGS):
        y = (low + high) / 2
        x = y + margin
        slope = canary * ((1 - rate) / (1 - x) - rate / x)
        slope += control * ((1 - rate) / (1 - y) - rate / y)
        low, high = (y, high) if slope < 0 else (low, y)
    return (low + high) / 2


def _log_likelihood(bad: int, num: int, rate: float) -> float:
    good = num - bad
    return (bad * log(rate) if bad else 0.0) + (good * log1p(-rate) if good else 0.0)
