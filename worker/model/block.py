"""The parts of a block that are the same arithmetic whatever the cache and the sum: pure functions.

Tensors and the constants of the configuration come in, tensors go out, nothing is kept: so one
compiled function serves every block, and the number of graphs depends on the configuration alone.
Between `entered` and `left` stand the write into the cache, attention and the sum over the ranks.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.ops import norm


# T = tokens of this forward, D = width, H = heads of this rank, E = head width, F = MLP width of
# this rank, N = 3 H E + 2 F
class Entered(NamedTuple):
    """What one block has made of its input before it looks at any other token."""

    q_HTE: Tensor
    k_HTE: Tensor
    v_HTE: Tensor
    mlp_TF: Tensor
    gate_D: Tensor


def entered(
    x_TD: Tensor,
    shared_3D: Tensor,
    own_3D: Tensor,
    input_ND: Tensor,
    *,
    num_heads: int,
    head_width: int,
) -> Entered:
    """Norm, shift and scale (all blocks' and this one's), and the product for attention and MLP."""
    shift_D, scale_D, gate_D = (shared_3D + own_3D).unbind()
    h_TD = norm.rms_norm(x_TD) * (1 + scale_D) + shift_D
    wide = num_heads * head_width
    mlp_width = (input_ND.shape[0] - 3 * wide) // 2
    q, k, v, mlp_gate_TF, up_TF = torch.split(
        F.linear(h_TD, input_ND), [wide, wide, wide, mlp_width, mlp_width], dim=1
    )
    q_HTE, k_HTE, v_HTE = (
        each.view(x_TD.shape[0], num_heads, head_width).transpose(0, 1) for each in (q, k, v)
    )
    return Entered(q_HTE, k_HTE, v_HTE, F.silu(mlp_gate_TF) * up_TF, gate_D)


def left(x_TD: Tensor, total_TD: Tensor, gate_D: Tensor) -> Tensor:
    """The input of the next block."""
    return x_TD + (1 + gate_D) * total_TD
