"""Random weights from a seed, and the part of them that one rank holds.

Every rank draws the whole model in the same order and keeps its slice: so any number of ranks
computes the same function.
"""

# ruff: noqa: N815 - shape suffixes in names; the legend is below

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.config import ModelConfig


# D = width, Q = query width of this rank, F = MLP width of this rank, C = latent channels
@dataclass(frozen=True, slots=True, kw_only=True)
class BlockWeights:
    """One block on one rank."""

    input_ND: Tensor  # N = 3 Q + 2 F: queries, keys, values, gate, up
    output_DK: Tensor  # K = Q + F: attention and MLP share one row-parallel product
    modulation_3D: Tensor  # this block's addition to the shared shift, scale and gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """The model on one rank; all but the blocks' products is the same on every rank."""

    blocks: tuple[BlockWeights, ...]
    latent_in_DC: Tensor
    latent_out_CD: Tensor
    extra_ED: Tensor  # E = extra tokens of a frame
    time_DD: Tensor
    modulation_3DD: Tensor


def draw(model: ModelConfig, *, rank: int, num_ranks: int) -> Weights:
    """The weights of `rank` out of `num_ranks`, in float32."""
    # Where the tensors are made; on the host also for `meta`, which draws nothing.
    place = torch.get_default_device()
    generator = torch.Generator(device=place if place.type == "cuda" else "cpu")
    generator.manual_seed(model.seed)
    width, channels = model.width, model.latent_channels

    def normal(*shape: int) -> Tensor:
        weights: Tensor = torch.randn(shape, generator=generator)
        return weights * math.sqrt(1 / shape[-1])

    blocks = tuple(
        _shard(
            model,
            normal(3 * width + 2 * model.mlp_width, width),
            normal(width, width + model.mlp_width),
            normal(3, width),
            rank=rank,
            num_ranks=num_ranks,
        )
        for _ in range(model.num_blocks)
    )
    return Weights(
        blocks=blocks,
        latent_in_DC=normal(width, channels),
        latent_out_CD=normal(channels, width),
        extra_ED=normal(model.num_extra_tokens, width),
        time_DD=normal(width, width),
        modulation_3DD=normal(3 * width, width),
    )


def _shard(
    model: ModelConfig,
    full_input: Tensor,
    full_output: Tensor,
    modulation: Tensor,
    *,
    rank: int,
    num_ranks: int,
) -> BlockWeights:
    width, mlp_width = model.width, model.mlp_width
    q, k, v, gate, up = torch.split(full_input, [width, width, width, mlp_width, mlp_width])
    attention, mlp = torch.split(full_output, [width, mlp_width], dim=1)

    def rows(whole: Tensor) -> Tensor:
        return whole.chunk(num_ranks, dim=0)[rank]

    def columns(whole: Tensor) -> Tensor:
        return whole.chunk(num_ranks, dim=1)[rank]

    return BlockWeights(
        input_ND=torch.cat([rows(part) for part in (q, k, v, gate, up)]),
        output_DK=torch.cat([columns(attention), columns(mlp)], dim=1).contiguous(),
        modulation_3D=modulation,
    )
