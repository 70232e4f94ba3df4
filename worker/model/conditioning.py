"""What a viewer's audio and control features add to the extra tokens of a frame.

A stand-in for a trained projection: a matrix drawn from the seed of the model. All ranks must add
the same bits, so the product is computed without rounding: whole numbers times multiples of 2^-16,
in float64, add up to the same value in any order. A model without extra tokens has no place for
features and ignores them.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is below

import math

import torch
from torch import Tensor

from worker import features
from worker.config import ModelConfig

_FRACTION = 2.0**16
# Another stream than that of the weights, whose seed it shares.
_SEED_OFFSET = 7_368_787


# E = extra tokens of a frame, D = width, N = features
class Conditioning:
    """The projection of one model; the same on every rank."""

    def __init__(self, model: ModelConfig) -> None:
        """Draw the matrix, in float64: [E, D, N]."""
        generator = torch.Generator().manual_seed(model.seed + _SEED_OFFSET)
        shape = (model.num_extra_tokens, model.width, features.NUM_BYTES)
        drawn_EDN = torch.randn(shape, generator=generator, dtype=torch.float64)
        # As wide as what it is added to when all features are at their most.
        scaled_EDN = drawn_EDN * (_FRACTION / math.sqrt(features.NUM_BYTES * model.width))
        self._matrix_EDN = scaled_EDN.round()

    def added(self, packed: bytes) -> Tensor:
        """What `packed`, see `worker.features`, adds to the extra tokens: [E, D] in float32."""
        signed_N = torch.frombuffer(bytearray(packed), dtype=torch.int8).to(torch.float64)
        total_ED = self._matrix_EDN @ signed_N
        return (total_ED / (_FRACTION * features.STEPS)).to(torch.float32)
