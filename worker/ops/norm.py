"""Root-mean-square norm without a learned scale."""

import torch
from torch import Tensor

EPSILON = 1e-6


def rms_norm(x: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """`x` with a mean square of 1 over its last dimension; an all-zero row stays zero."""
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + epsilon)
