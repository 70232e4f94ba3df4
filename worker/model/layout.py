"""The tensors of a checkpoint: names, shapes, files, and how each is split over ranks.

Whole tensors under plain names, so that one checkpoint serves any number of ranks. A file a block:
what is mapped while a rank loads is never more than one block.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

SHARED_FILE = "shared.safetensors"


class Sizes(Protocol):
    """The numbers of a model that its weights depend on."""

    @property
    def num_blocks(self) -> int: ...  # noqa: D102 - as in `worker.config.ModelConfig`, all of them
    @property
    def width(self) -> int: ...  # noqa: D102
    @property
    def mlp_width(self) -> int: ...  # noqa: D102
    @property
    def latent_channels(self) -> int: ...  # noqa: D102
    @property
    def num_extra_tokens(self) -> int: ...  # noqa: D102


class Split(IntEnum):
    """The dimension along which ranks share a tensor."""

    ROWS = 0
    COLUMNS = 1
    NONE = 2  # every rank holds it whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One tensor of a file."""

    name: str
    shape: tuple[int, int]
    split: Split = Split.NONE


def block_file(block: int) -> str:
    """The name of the file of one block."""
    return f"block-{block:05}.safetensors"


def block_entries(model: Sizes) -> tuple[Entry, ...]:
    """The tensors of one block; the same names in each file.

    The first five stand in the order of the fused input product, the next two in that of the
    output product.
    """
    wide, mlp = model.width, model.mlp_width
    return (
        Entry(name="query", shape=(wide, wide), split=Split.ROWS),
        Entry(name="key", shape=(wide, wide), split=Split.ROWS),
        Entry(name="value", shape=(wide, wide), split=Split.ROWS),
        Entry(name="gate", shape=(mlp, wide), split=Split.ROWS),
        Entry(name="up", shape=(mlp, wide), split=Split.ROWS),
        Entry(name="attention_out", shape=(wide, wide), split=Split.COLUMNS),
        Entry(name="mlp_out", shape=(wide, mlp), split=Split.COLUMNS),
        Entry(name="modulation", shape=(3, wide)),
    )


def shared_entries(model: Sizes) -> tuple[Entry, ...]:
    """The tensors outside the blocks, named as in `weights.Weights`."""
    wide = model.width
    return (
        Entry(name="latent_in", shape=(wide, model.latent_channels)),
        Entry(name="latent_out", shape=(model.latent_channels, wide)),
        Entry(name="extra", shape=(model.num_extra_tokens, wide)),
        Entry(name="time", shape=(wide, wide)),
        Entry(name="modulation", shape=(3 * wide, wide)),
    )


def files(model: Sizes) -> dict[str, tuple[Entry, ...]]:
    """Every file of a checkpoint of `model` with its tensors."""
    blocks = {block_file(block): block_entries(model) for block in range(model.num_blocks)}
    return {**blocks, SHARED_FILE: shared_entries(model)}
