"""FP8 e4m3 with one scale a head: rounded, widened, and attended to.

No cast is left to the library: beyond 464 torch 2.11 makes a NaN where 2.13 saturates, so every
cast stands behind an explicit clamp, and what was clamped is counted.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

E4M3 = torch.float8_e4m3fn
LARGEST = 448.0  # of e4m3


# B = blocks, H = heads of this rank, T = tokens, S = valid slots of the cache, D = head width.
# The functions below take [H, T, D] with scales [H], and [B, H, T, D] with scales [B, H].
@dataclass(frozen=True, slots=True, kw_only=True)
class HeadScales:
    """What one stored unit is worth, for each head: value = stored x scale. Float32, on device."""

    key_H: Tensor
    value_H: Tensor


def rounded(x_HTD: Tensor, scale_H: Tensor) -> tuple[Tensor, Tensor]:
    """`x_HTD` in units of its head's scale as e4m3, and how many numbers of each head were clamped.

    A NaN stays a NaN and counts as clamped: it must never look like a healthy number.
    """
    return rounded_units(x_HTD.float() / scale_H[..., None, None])


def rounded_units(units_HTD: Tensor) -> tuple[Tensor, Tensor]:
    """As `rounded`, for numbers that are in units of their scale already."""
    is_outside_HTD = ~(units_HTD.abs() <= LARGEST)
    num_clamped_H = is_outside_HTD.sum(dim=(-2, -1))
    return units_HTD.clamp(-LARGEST, LARGEST).to(E4M3), num_clamped_H


def widened(stored_HTD: Tensor, scale_H: Tensor) -> Tensor:
    """The inverse of `rounded` in float32, but for the rounding."""
    return stored_HTD.float() * scale_H[..., None, None]


def attend(q_HTD: Tensor, k_HSD: Tensor, v_HSD: Tensor, scales: HeadScales) -> Tensor:
    """Attention over e4m3 keys and values; scales are applied where they commute.

    The scale of the keys goes into the queries, that of the values into the result: so a kernel
    that knows one scale a tensor serves one scale a head. Here the stored bytes are widened in
    the call; a kernel of the accelerator reads them as they are.

    Returns: out_HTD in the dtype of `q_HTD`, computed in float32.
    """
    q_HTD32 = q_HTD.float() * scales.key_H[:, None, None]
    out_HTD = F.scaled_dot_product_attention(
        q_HTD32[None], k_HSD.float()[None], v_HSD.float()[None]
    )
    return (out_HTD[0] * scales.value_H[:, None, None]).to(q_HTD.dtype)
