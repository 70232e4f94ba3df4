"""Counts of clamped numbers on their way from ranks to a process window: totals and worst heads.

However many heads there are, a message stays small. No torch. Each head is of one rank, so the
worst of all ranks are among the worst of each.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.contract.vocabulary import MAX_WORST_HEADS


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCount:
    """Numbers clamped in one head."""

    block: int
    head: int  # of the whole model
    num_keys: int
    num_values: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClampSample:
    """Numbers clamped in a cache, or in those of several ranks."""

    num_keys: int
    num_values: int
    worst: tuple[HeadCount, ...]  # the worst first; none without any


def of_rank(counts_2bh: Sequence[Sequence[Sequence[int]]], *, first_head: int) -> ClampSample:
    """The sample of one rank from its counts of keys and values, by block and head.

    `first_head` is the number in the whole model of the rank's first.
    """
    keys, values = counts_2bh
    heads = [
        HeadCount(block=block, head=first_head + head, num_keys=num_keys, num_values=num_values)
        for block, (of_keys, of_values) in enumerate(zip(keys, values, strict=True))
        for head, (num_keys, num_values) in enumerate(zip(of_keys, of_values, strict=True))
    ]
    return ClampSample(
        num_keys=sum(head.num_keys for head in heads),
        num_values=sum(head.num_values for head in heads),
        worst=_worst(heads),
    )


def merged(samples: Iterable[ClampSample | None]) -> ClampSample | None:
    """The sample of a group; None if a rank has none, since a part would pass for the whole."""
    known = []
    for sample in samples:
        if sample is None:
            return None
        known.append(sample)
    if not known:
        return None
    return ClampSample(
        num_keys=sum(sample.num_keys for sample in known),
        num_values=sum(sample.num_values for sample in known),
        worst=_worst(head for sample in known for head in sample.worst),
    )


def to_fields(sample: ClampSample) -> dict[str, Any]:
    """As JSON values."""
    return asdict(sample)


def from_fields(fields: Mapping[str, Any] | None) -> ClampSample | None:
    """What `to_fields` was given; None for none."""
    if fields is None:
        return None
    worst = tuple(HeadCount(**head) for head in fields["worst"])
    return ClampSample(num_keys=fields["num_keys"], num_values=fields["num_values"], worst=worst)


def _worst(heads: Iterable[HeadCount]) -> tuple[HeadCount, ...]:
    clamped = [head for head in heads if head.num_keys + head.num_values]
    # Ties by place, so that every window names the same ones.
    clamped.sort(key=lambda head: (-head.num_keys - head.num_values, head.block, head.head))
    return tuple(clamped[:MAX_WORST_HEADS])
