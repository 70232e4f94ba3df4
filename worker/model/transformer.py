"""The transformer of one rank: parallel blocks with one all-reduce each.

Attention and MLP share the input norm and one row-parallel output product, so that a block needs
one sum over the ranks where a sequential one needs two. Plain and eager; what makes it fast is
handed in from outside.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.cache.store import RingCache
from worker.config import ModelConfig
from worker.model import weights
from worker.ops import attention, norm, rope

Write = Callable[[int, Tensor, Tensor], None]


# T = tokens of this forward, L = prompt tokens, G = grid tokens of a frame, C = latent channels,
# D = width, H = heads of this rank, E = head width, F = MLP width of this rank
class Reduce(Protocol):
    """Sums the partial products of all ranks."""

    def __call__(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor:
        """Replace `partial_TD` by its sum over all ranks and return it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """What is the same for every block of one forward."""

    turn: rope.Turn
    write: Write
    cache: RingCache
    modulation_3D: Tensor
    reduce: Reduce
    is_first_forward: bool


class Transformer:
    """The part of the model that one rank computes."""

    def __init__(self, model: ModelConfig, *, rank: int, num_ranks: int) -> None:
        """Draw the weights of this rank."""
        self._model = model
        self._weights = weights.draw(model, rank=rank, num_ranks=num_ranks)
        self._num_heads = model.num_heads // num_ranks
        self._attention_width = self._num_heads * model.head_width
        self._mlp_width = model.mlp_width // num_ranks
        # Positions stay below this, see `cache.ring`; a table row is never asked for beyond it.
        self._frame_turns = tuple(
            rope.frame_turn(
                position, grid=model.grid, num_extra=model.num_extra_tokens, split=model.rope_split
            )
            for position in range(model.reset_period + model.window)
        )
        self._modulations = tuple(
            self._modulation(1 - number / model.num_passes) for number in range(model.num_passes)
        )

    def new_cache(self) -> RingCache:
        """An empty cache for one session."""
        return RingCache(self._model, num_heads=self._num_heads)

    def first_forward(self, prompt_LD: Tensor, cache: RingCache, *, reduce: Reduce) -> None:
        """Fill the prefix of `cache` from a prompt of any length within the bounds."""
        length = prompt_LD.shape[0]
        cache.open_prefix(length)
        self._blocks(
            prompt_LD,
            _Forward(
                turn=rope.prefix_turn(length, split=self._model.rope_split),
                write=cache.write_prefix,
                cache=cache,
                modulation_3D=self._modulations[0],
                reduce=reduce,
                is_first_forward=True,
            ),
        )

    def denoised(
        self, noise_GC: Tensor, cache: RingCache, *, slot: int, position: int, reduce: Reduce
    ) -> Tensor:
        """The latent of the next frame, by `num_passes` Euler steps from noise.

        Returns: latent_GC in float32. The cache then holds the frame of the last pass in `slot`.
        """
        cache.open_frame(slot)

        def write(block: int, k_HTE: Tensor, v_HTE: Tensor) -> None:
            cache.write_frame(block, slot, k_HTE, v_HTE)

        latent_GC = noise_GC
        for modulation_3D in self._modulations:
            velocity_GC = self._velocity(
                latent_GC,
                _Forward(
                    turn=self._frame_turns[position],
                    write=write,
                    cache=cache,
                    modulation_3D=modulation_3D,
                    reduce=reduce,
                    is_first_forward=False,
                ),
            )
            latent_GC = latent_GC + velocity_GC / self._model.num_passes
        return latent_GC

    def _velocity(self, latent_GC: Tensor, forward: _Forward) -> Tensor:
        x_TD = torch.cat([F.linear(latent_GC, self._weights.latent_in_DC), self._weights.extra_ED])
        x_TD = self._blocks(x_TD, forward)[: latent_GC.shape[0]]
        return F.linear(norm.rms_norm(x_TD), self._weights.latent_out_CD)

    def _blocks(self, x_TD: Tensor, forward: _Forward) -> Tensor:
        for block, block_weights in enumerate(self._weights.blocks):
            shift_D, scale_D, gate_D = forward.modulation_3D + block_weights.modulation_3D
            h_TD = norm.rms_norm(x_TD) * (1 + scale_D) + shift_D
            partial_TD = self._partial(h_TD, block, block_weights, forward)
            total_TD = forward.reduce(partial_TD, is_first_forward=forward.is_first_forward)
            x_TD = x_TD + (1 + gate_D) * total_TD
        return x_TD

    def _partial(
        self, h_TD: Tensor, block: int, block_weights: weights.BlockWeights, forward: _Forward
    ) -> Tensor:
        """This rank's part of the output product of one block; rows add up over the ranks."""
        wide = self._attention_width
        q, k, v, gate_TF, up_TF = torch.split(
            F.linear(h_TD, block_weights.input_ND),
            [wide, wide, wide, self._mlp_width, self._mlp_width],
            dim=1,
        )
        q_HTE, k_HTE, v_HTE = (self._heads(part) for part in (q, k, v))
        k_HTE = rope.rotated(norm.rms_norm(k_HTE), forward.turn)
        forward.write(block, k_HTE, v_HTE)
        q_HTE = rope.rotated(norm.rms_norm(q_HTE), forward.turn)
        out_HTE = attention.attend(q_HTE, *forward.cache.read(block))
        joined_TK = torch.cat([out_HTE.transpose(0, 1).flatten(1), F.silu(gate_TF) * up_TF], dim=1)
        return F.linear(joined_TK, block_weights.output_DK)

    def _heads(self, x_TQ: Tensor) -> Tensor:
        return x_TQ.view(x_TQ.shape[0], self._num_heads, -1).transpose(0, 1)

    def _modulation(self, noise_level: float) -> Tensor:
        """Shift, scale and gate of one noise level, shared by all blocks: [3, D]."""
        half = self._model.width // 2
        frequencies = torch.exp(torch.arange(half) * (-math.log(1000.0) / half))
        angles = noise_level * 1000.0 * frequencies
        time_D = F.silu(F.linear(torch.cat([angles.cos(), angles.sin()]), self._weights.time_DD))
        return 0.1 * F.linear(time_D, self._weights.modulation_3DD).view(3, -1)
