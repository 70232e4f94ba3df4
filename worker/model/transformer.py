"""The transformer of one rank: parallel blocks with one all-reduce each.

Attention and MLP share the input norm and one row-parallel output product, so that a block needs
one sum over the ranks where a sequential one needs two. Plain and eager; what makes it fast is
handed in from outside: the cache, the sum, the weights, and how the parts of a block are run.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

import math
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.cache import contents as contents_
from worker.cache.contents import KeyValueCache, Tokens
from worker.cache.ring import RingCursor
from worker.config import ModelConfig
from worker.model import block as block_
from worker.model.execution import EAGER, Execution
from worker.model.weights import Weights
from worker.ops import attention, norm, rope
from worker.ops.pre_attention import Heads


# T = tokens of this forward, L = prompt tokens, G = grid tokens of a frame, C = latent channels,
# D = width, H = heads of this rank, E = head width, F = MLP width of this rank, K = H E + F
class Reduce(Protocol):
    """The output product of a block and its sum over all ranks, as one operation."""

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        """total_TD: the sum over the ranks of each one's `joined_TK` times its `weight_DK`."""
        ...


class OwnPart:
    """No sum: what this rank has is taken for the whole, as on one rank or in a trial of one."""

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        """total_TD."""
        del is_first_forward
        return F.linear(joined_TK, weight_DK)


class Attend(Protocol):
    """Attention of the new tokens of one block over all that the forward may see."""

    def __call__(self, block: int, heads: Heads) -> Tensor:
        """out_HTE."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Denoised:
    """What one step made."""

    latent_GC: Tensor
    seen_GC: Tensor  # what the last pass saw, and the keys in the cache come from: for a rebuild


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forward:
    """What is the same for every block of one forward."""

    parts: Execution
    attend: Attend
    modulation_3D: Tensor
    reduce: Reduce
    is_first_forward: bool


class Transformer:
    """The part of the model that one rank computes."""

    def __init__(
        self,
        model: ModelConfig,
        weights: Weights,
        *,
        num_ranks: int,
        execution: Execution = EAGER,
    ) -> None:
        """Compute with `weights`, which are those of one of `num_ranks`."""
        self._model = model
        self._weights = weights
        self.execution = execution
        self.num_heads = model.num_heads // num_ranks
        self._modulations = tuple(
            self._modulation(1 - number / model.num_passes) for number in range(model.num_passes)
        )

    def first_forward(self, prompt_LD: Tensor, cache: KeyValueCache, *, reduce: Reduce) -> None:
        """Fill the prefix of an empty `cache` from a prompt of any length within the bounds.

        Eager whatever the execution: a graph for each length of a prompt would have no bound.
        """
        length = prompt_LD.shape[0]
        turn = contents_.prefix_turn(length, time=0, split=self._model.rope_split)
        kept: list[Heads] = []

        def attend(block: int, heads: Heads) -> Tensor:
            """A prompt sees itself and nothing else, so no format has a say in it."""
            del block
            k_HTE = norm.rms_norm(heads.k_HTD)
            kept.append(Heads(q_HTD=heads.q_HTD, k_HTD=k_HTE, v_HTD=heads.v_HTD))
            q_HTE = rope.rotated(norm.rms_norm(heads.q_HTD), turn)
            return attention.attend(q_HTE, rope.rotated(k_HTE, turn), heads.v_HTD)

        self._blocks(
            prompt_LD,
            _Forward(
                parts=EAGER,
                attend=attend,
                modulation_3D=self._modulations[0],
                reduce=reduce,
                is_first_forward=True,
            ),
        )
        cache.write_prefix(
            Tokens(
                k_BHTD=torch.stack([heads.k_HTD for heads in kept]),
                v_BHTD=torch.stack([heads.v_HTD for heads in kept]),
            )
        )

    def denoised(
        self,
        noise_GC: Tensor,
        cache: KeyValueCache,
        cursor: RingCursor,
        *,
        reduce: Reduce,
        added_ED: Tensor | None = None,
    ) -> Denoised:
        """The latent of the frame of `cursor`, by `num_passes` Euler steps from noise.

        `added_ED`, see `model.conditioning`, is added to the extra tokens of the frame. The cache
        then holds the frame as the last pass saw it.
        """
        cache.open_frame(cursor)
        extra_ED = self._extra(added_ED)
        latent_GC = seen_GC = noise_GC
        for modulation_3D in self._modulations:
            seen_GC = latent_GC
            forward = self._over(cache, modulation_3D, reduce)
            velocity_GC = self._velocity(latent_GC, extra_ED, forward)
            latent_GC = latent_GC + velocity_GC / self._model.num_passes
        return Denoised(latent_GC=latent_GC, seen_GC=seen_GC)

    def replay(
        self,
        seen_GC: Tensor,
        cache: KeyValueCache,
        cursor: RingCursor,
        *,
        reduce: Reduce,
        added_ED: Tensor | None = None,
    ) -> None:
        """Write the frame of `cursor` again from what its last pass saw: one forward."""
        cache.open_frame(cursor)
        forward = self._over(cache, self._modulations[-1], reduce)
        self._velocity(seen_GC, self._extra(added_ED), forward)

    def _extra(self, added_ED: Tensor | None) -> Tensor:
        extra_ED = self._weights.extra_ED
        return extra_ED if added_ED is None else extra_ED + added_ED

    def _over(self, cache: KeyValueCache, modulation_3D: Tensor, reduce: Reduce) -> _Forward:
        def attend(block: int, heads: Heads) -> Tensor:
            return cache.attend(block, cache.prepare(block, heads))

        return _Forward(
            parts=self.execution,
            attend=attend,
            modulation_3D=modulation_3D,
            reduce=reduce,
            is_first_forward=False,
        )

    def _velocity(self, latent_GC: Tensor, extra_ED: Tensor, forward: _Forward) -> Tensor:
        x_TD = torch.cat([F.linear(latent_GC, self._weights.latent_in_DC), extra_ED])
        x_TD = self._blocks(x_TD, forward)[: latent_GC.shape[0]]
        return F.linear(norm.rms_norm(x_TD), self._weights.latent_out_CD)

    def _blocks(self, x_TD: Tensor, forward: _Forward) -> Tensor:
        entered, left = forward.parts.form(block_.entered), forward.parts.form(block_.left)
        for block, held in enumerate(self._weights.blocks):
            made = entered(
                x_TD,
                forward.modulation_3D,
                held.modulation_3D,
                held.input_ND,
                num_heads=self.num_heads,
                head_width=self._model.head_width,
            )
            heads = Heads(q_HTD=made.q_HTE, k_HTD=made.k_HTE, v_HTD=made.v_HTE)
            out_HTE = forward.attend(block, heads)
            joined_TK = torch.cat([out_HTE.transpose(0, 1).flatten(1), made.mlp_TF], dim=1)
            total_TD = forward.reduce.product(
                joined_TK, held.output_DK, is_first_forward=forward.is_first_forward
            )
            x_TD = left(x_TD, total_TD, made.gate_D)
        return x_TD

    def _modulation(self, noise_level: float) -> Tensor:
        """Shift, scale and gate of one noise level, shared by all blocks: [3, D]."""
        half = self._model.width // 2
        frequencies = torch.exp(torch.arange(half) * (-math.log(1000.0) / half))
        angles = noise_level * 1000.0 * frequencies
        time_D = F.silu(F.linear(torch.cat([angles.cos(), angles.sin()]), self._weights.time_DD))
        return 0.1 * F.linear(time_D, self._weights.modulation_3DD).view(3, -1)
