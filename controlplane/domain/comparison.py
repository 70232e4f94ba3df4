"""What the recorded blocks say of a canary against its controls: a fold, and nothing else.

Rollback and promotion each have their own question. Neither "no regression was shown" promotes, nor
"not shown to be as good" rolls back.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import fsum
from typing import Final, Self

from controlplane.domain import eprocess, noninferiority
from controlplane.domain.blocks import (
    FAILED,
    FAILED_SESSIONS,
    SHIFT,
    SLOW,
    STEP_TIME,
    UNRATED,
    Block,
    Kind,
    ranked,
)
from controlplane.domain.eprocess import QUANTILES, Mixture, Table

# What promotion asks about, each on its own: all of them must be shown, so alpha is not divided.
# A rate of failures needs those that did not fail: sessions of the window, in their arms.
GUARDRAILS: Final = (SLOW, FAILED_SESSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """How much of the evidence each indicator of harm carries; they add up to 1."""

    slow: float = 0.6
    failed: float = 0.3
    shift: float = 0.1
    step_time: float = 0.0

    def of(self) -> Mapping[str, float]:
        """By the name of the indicator, those that carry any."""
        named = {
            SLOW: self.slow,
            FAILED: self.failed,
            SHIFT: self.shift,
            STEP_TIME: self.step_time,
        }
        return {name: weight for name, weight in named.items() if weight > 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """Evidence that the canary does worse."""

    value: float  # the weighted mean; above 1 / alpha at most in alpha of healthy canaries, ever
    trajectory: tuple[float, ...]  # the value after each block
    by_indicator: Mapping[str, float]  # e-value of each
    attributed: str  # the indicator with the largest weighted e-value
    num_blocks: int  # in which both arms had someone
    state: "Folded"  # after the last block


@dataclass(frozen=True, slots=True)
class Folded:
    """The state of every indicator that carries weight: what one more block is added to."""

    weights: Mapping[str, float]
    folds: Mapping[str, "_Fold"]

    @classmethod
    def of(cls, weights: Weights) -> Self:
        """Before the first block."""
        weighted = weights.of()
        return cls(weighted, {indicator: _Fold.of(indicator) for indicator in weighted})

    def after(self, block: Block) -> Self:
        """With one more block."""
        folds = {indicator: fold.after(block) for indicator, fold in self.folds.items()}
        return replace(self, folds=folds)

    @property
    def value(self) -> float:
        """The weighted mean of the e-values."""
        return eprocess.combined((self.weights[n], f.value) for n, f in self.folds.items())


def regression(blocks: Iterable[Block], weights: Weights) -> Regression:
    """The evidence of all blocks, in the order they were written."""
    state = Folded.of(weights)
    trajectory: list[float] = []
    num_blocks = 0
    for block in blocks:
        state = state.after(block)
        trajectory.append(state.value)
        num_blocks += any(t.is_comparison for tables in block.tables.values() for t in tables)
    values = {indicator: fold.value for indicator, fold in state.folds.items()}
    return Regression(
        value=state.value,
        trajectory=tuple(trajectory),
        by_indicator=values,
        attributed=max(values, key=lambda name: state.weights[name] * values[name]),
        num_blocks=num_blocks,
        state=state,
    )


def indicator_value(blocks: Iterable[Block], indicator: str) -> float:
    """The e-value of one indicator; of an indicator of ranks the mean over its quantiles."""
    fold = _Fold.of(indicator)
    for block in blocks:
        fold = fold.after(block)
    return fold.value


@dataclass(frozen=True, slots=True)
class _Fold:
    """E-processes of one indicator: one, or one a quantile."""

    kind: Kind
    states: tuple[tuple[str, Mixture], ...]  # key in `Block.tables`, state

    @classmethod
    def of(cls, indicator: str) -> Self:
        keys = [indicator]
        if indicator not in (SLOW, UNRATED, FAILED):
            keys = [ranked(indicator, quantile) for quantile in QUANTILES]
        kind = Kind.FAILURES if indicator == FAILED else Kind.SESSIONS
        return cls(kind, tuple((key, Mixture()) for key in keys))

    def after(self, block: Block) -> Self:
        if block.kind is not self.kind:
            return self
        states = ((key, state.after(block.tables.get(key, ()))) for key, state in self.states)
        return replace(self, states=tuple(states))

    @property
    def value(self) -> float:
        return fsum(state.value for _, state in self.states) / len(self.states)


def non_inferiority(
    blocks: Iterable[Block], *, margin: float, is_synthetic: bool = False
) -> Mapping[str, float]:
    """For each guardrail the e-value against "worse by the margin or more", over all blocks.

    A later step asks for a smaller margin of the same blocks: nothing is reset. Live sessions alone
    speak for live ones: the null hypothesis of a product over strata would be "worse in every
    one", and healthy synthetic sessions would vouch for sick live ones.
    """
    known = list(blocks)
    return {
        guardrail: noninferiority.evidence(
            parity_tables(known, guardrail, is_synthetic=is_synthetic), margin=margin
        )
        for guardrail in GUARDRAILS
    }


def parity_tables(blocks: Iterable[Block], indicator: str, *, is_synthetic: bool) -> list[Table]:
    """The tables of one kind of traffic, in the order they were written."""
    return [
        table for block in blocks for table in stratum(block, indicator, is_synthetic=is_synthetic)
    ]


def stratum(block: Block, indicator: str, *, is_synthetic: bool) -> tuple[Table, ...]:
    """The table of one kind of traffic in one block: live ones have the first place."""
    tables = block.tables.get(indicator, ())
    return tables[1:] if is_synthetic else tables[:1]


def totals(blocks: Iterable[Block], indicator: str) -> Table:
    """Units of both arms over all blocks and strata: for display, never for a decision."""
    tables = [table for block in blocks for table in block.tables.get(indicator, ())]
    return Table(
        canary_bad=sum(table.canary_bad for table in tables),
        canary=sum(table.canary for table in tables),
        control_bad=sum(table.control_bad for table in tables),
        control=sum(table.control for table in tables),
    )
