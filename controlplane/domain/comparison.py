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


def regression(blocks: Iterable[Block], weights: Weights) -> Regression:
    """The evidence of all blocks, in the order they were written."""
    weighted = weights.of()
    folds = {indicator: _Fold.of(indicator) for indicator in weighted}
    trajectory: list[float] = []
    num_blocks = 0
    for block in blocks:
        folds = {indicator: fold.after(block) for indicator, fold in folds.items()}
        trajectory.append(
            eprocess.combined((weight, folds[name].value) for name, weight in weighted.items())
        )
        num_blocks += any(t.is_comparison for tables in block.tables.values() for t in tables)
    values = {indicator: fold.value for indicator, fold in folds.items()}
    return Regression(
        value=trajectory[-1] if trajectory else 1.0,
        trajectory=tuple(trajectory),
        by_indicator=values,
        attributed=max(weighted, key=lambda name: weighted[name] * values[name]),
        num_blocks=num_blocks,
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


def non_inferiority(blocks: Iterable[Block], *, margin: float) -> Mapping[str, float]:
    """For each guardrail the e-value against "worse by the margin or more", over all blocks.

    A later step asks for a smaller margin of the same blocks: nothing is reset. Where live sessions
    were compared they alone decide: the null hypothesis of a product over strata would be "worse in
    every one", and healthy synthetic sessions would vouch for sick live ones.
    """
    known = list(blocks)
    return {
        guardrail: noninferiority.evidence(parity_tables(known, guardrail), margin=margin)
        for guardrail in GUARDRAILS
    }


def parity_tables(blocks: Iterable[Block], guardrail: str) -> list[Table]:
    """The tables that promotion rests on: of live sessions, or of synthetic ones if no other."""
    strata = [tables for block in blocks if (tables := block.tables.get(guardrail))]
    live = [tables[0] for tables in strata]
    if any(table.is_comparison for table in live):
        return live
    return [table for tables in strata for table in tables[1:]]


def totals(blocks: Iterable[Block], indicator: str) -> Table:
    """Units of both arms over all blocks and strata: for display, never for a decision."""
    tables = [table for block in blocks for table in block.tables.get(indicator, ())]
    return Table(
        canary_bad=sum(table.canary_bad for table in tables),
        canary=sum(table.canary for table in tables),
        control_bad=sum(table.control_bad for table in tables),
        control=sum(table.control for table in tables),
    )
