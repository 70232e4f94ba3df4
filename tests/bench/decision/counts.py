"""Streams as what the evidence of the product is made of: tables of counts, in blocks.

The counting is done for all streams at once; a test holds it against the product's own counting of
session records.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, TypeAlias

import numpy as np

from controlplane.domain.blocks import FAILED, SHIFT, SLOW, Block, Kind, ranked
from controlplane.domain.eprocess import QUANTILES, Table
from tests.bench.decision.streams import Arm, Bools, Floats, Ints, Streams

# When the first window opens, and how long each lasts: blocks carry times, no evidence reads them.
OPENED_AT: Final = datetime(2026, 10, 8, tzinfo=UTC)
WINDOW: Final = timedelta(minutes=5)
# Slow or failed: an indicator of the study, not of the product.
HARMED: Final = "harmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Bad sessions of one stratum, a row a stream, a column a block, and of how many."""

    canary_bad: Ints
    canary: Ints
    control_bad: Ints
    control: Ints

    def tables(self, stream: int) -> Iterator[Table]:
        """The tables of one stream, block by block."""
        rows = (self.canary_bad[stream], self.canary, self.control_bad[stream], self.control)
        for numbers in zip(*(row.tolist() for row in rows), strict=True):
            yield _table(*numbers)


# Indicator -> the counts of each stratum.
AllCounts: TypeAlias = Mapping[str, Sequence[Counts]]


@lru_cache(maxsize=2**16)
def _table(canary_bad: int, canary: int, control_bad: int, control: int) -> Table:
    return Table(canary_bad, canary, control_bad, control)


def counted(streams: Streams) -> AllCounts:
    """Every indicator of the product, and slow or failed together, by block and stratum."""
    canary, control = streams.canary, streams.control
    bad = {
        SLOW: (canary.slow, control.slow),
        FAILED: (canary.failed, control.failed),
        HARMED: (canary.harmed, control.harmed),
    }
    counts = {
        name: [_counts(streams, of_arms, stratum=stratum) for stratum in streams.strata]
        for name, of_arms in bad.items()
    }
    for quantile in QUANTILES:
        counts[ranked(SHIFT, quantile)] = [
            _worst(streams, quantile=quantile, stratum=stratum) for stratum in streams.strata
        ]
    return counts


def in_smaller_blocks(streams: Streams, *, num_parts: int) -> Streams:
    """The same sessions in blocks of a part of the size, both arms divided alike.

    Where there are two strata, a block's controls of the old cards come to its parts in turns: as
    in one fleet, whose sessions of both begin at any moment.
    """
    canary, control = (
        replace(arm, num_a_block=arm.num_a_block // num_parts)
        for arm in (streams.canary, streams.control)
    )
    size = streams.control.num_a_block
    # Old cards first, then dealt to the parts like cards.
    order = np.argsort(-streams.control.stratum[:size], kind="stable")
    dealt = order.reshape(-1, num_parts).T.reshape(-1)
    columns = (np.arange(len(control.stratum)) // size * size) + np.tile(
        dealt, len(control.stratum) // size
    )
    if len(streams.strata) > 1:
        control = control.in_order(columns)
    return replace(streams, canary=canary, control=control)


def blocks(counts: AllCounts, stream: int) -> Iterator[tuple[Block, Block]]:
    """The blocks of one stream as the product writes them: of sessions, and of failures.

    Failures have a block a window here, also where nobody failed, as in the study; the product
    writes none then.
    """
    indicators = [name for name in counts if name not in (FAILED, HARMED)]
    of_sessions = zip(*(_by_block(counts[name], stream) for name in indicators), strict=True)
    of_failures = _by_block(counts[FAILED], stream)
    for index, (row, failed) in enumerate(zip(of_sessions, of_failures, strict=True)):
        opened_at, closed_at = _window(index)
        yield (
            Block(
                kind=Kind.SESSIONS,
                index=index,
                opened_at=opened_at,
                closed_at=closed_at,
                arms={},
                tables=dict(zip(indicators, row, strict=True)),
                sessions=(),
            ),
            Block(
                kind=Kind.FAILURES,
                index=index,
                opened_at=opened_at,
                closed_at=closed_at,
                arms={},
                tables={FAILED: failed},
                sessions=(),
            ),
        )


@lru_cache(maxsize=2**10)
def _window(index: int) -> tuple[datetime, datetime]:
    return OPENED_AT + index * WINDOW, OPENED_AT + (index + 1) * WINDOW


def _by_block(strata: Sequence[Counts], stream: int) -> Iterator[tuple[Table, ...]]:
    return zip(*(counts.tables(stream) for counts in strata), strict=True)


def _counts(streams: Streams, bad: tuple[Bools, Bools], *, stratum: int) -> Counts:
    arms = (streams.canary, streams.control)
    is_in = [arm.stratum == stratum for arm in arms]
    canary_bad, control_bad = (
        arm.by_block(of_arm & chosen) for arm, of_arm, chosen in zip(arms, bad, is_in, strict=True)
    )
    canary, control = (
        arm.by_block(chosen[None])[0] for arm, chosen in zip(arms, is_in, strict=True)
    )
    return Counts(canary_bad=canary_bad, canary=canary, control_bad=control_bad, control=control)


def _worst(streams: Streams, *, quantile: float, stratum: int) -> Counts:
    """As `eprocess.worst_ranked`: failed sessions rank worst, who ties with the last one counts."""
    arms = (streams.canary, streams.control)
    sizes = [arm.by_block((arm.stratum == stratum)[None])[0] for arm in arms]
    ranks = [_ranks(arm, stratum) for arm in arms]
    num_worst = np.floor(quantile * (sizes[0] + sizes[1])).astype(np.int64)
    pooled = np.sort(np.concatenate(ranks, axis=2), axis=2)
    last = np.broadcast_to(np.maximum(num_worst - 1, 0)[None, :, None], (*pooled.shape[:2], 1))
    threshold = np.take_along_axis(pooled, last, axis=2)
    # Below one session there is nothing to compare, and nobody counts.
    is_comparison = num_worst >= 1
    bad = [((rank <= threshold).sum(2) * is_comparison).astype(np.int64) for rank in ranks]
    return Counts(
        canary_bad=bad[0],
        canary=sizes[0] * is_comparison,
        control_bad=bad[1],
        control=sizes[1] * is_comparison,
    )


def _ranks(arm: Arm, stratum: int) -> Floats:
    """Frame rates by block; failed ones lowest, those of another stratum highest: never counted."""
    rank = np.nan_to_num(arm.fps, nan=-np.inf, neginf=-np.inf)
    rank = np.where(arm.stratum == stratum, rank, np.inf)
    return rank.reshape(len(rank), -1, arm.num_a_block)
