"""Rotary positions in three dimensions: time, row and column.

Angles are built in float64 and cast: with float32 angles the result would depend on the offset.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from dataclasses import dataclass

import torch
from torch import Tensor

_BASE = 10_000.0


# T = tokens, H = heads, D = head width, E = D / 2
@dataclass(frozen=True, slots=True)
class Turn:
    """Cosines and sines of the angles of some tokens."""

    cos_TE: Tensor
    sin_TE: Tensor


def _angles(positions: Tensor, channels: int) -> Tensor:
    pairs = torch.arange(channels // 2, dtype=torch.float64)
    return positions.to(torch.float64)[:, None] * _BASE ** (-2 * pairs / max(channels, 1))


def turn(times: Tensor, rows: Tensor, columns: Tensor, *, split: tuple[int, int, int]) -> Turn:
    """The turn of tokens at the given integer positions, each of shape [T]."""
    angles_TE = torch.cat(
        [
            _angles(axis, channels)
            for axis, channels in zip((times, rows, columns), split, strict=True)
        ],
        dim=1,
    )
    return Turn(angles_TE.cos().float(), angles_TE.sin().float())


def frame_turn(
    position: int, *, grid: tuple[int, int], num_extra: int, split: tuple[int, int, int]
) -> Turn:
    """The turn of one frame at `position`; extra tokens stand in a row below the grid."""
    num_rows, num_columns = grid
    cells = torch.arange(num_rows * num_columns)
    rows = torch.cat([cells // num_columns, torch.full((num_extra,), num_rows)])
    columns = torch.cat([cells % num_columns, torch.arange(num_extra)])
    return turn(torch.full_like(rows, position), rows, columns, split=split)


def shift_turn(shift: int, *, split: tuple[int, int, int]) -> Turn:
    """The turn that moves keys back by `shift` in time; for the channels of the time axis only."""
    angles = _angles(torch.full((1,), -shift), split[0])
    return Turn(angles.cos().float(), angles.sin().float())


def rotated(x_HTD: Tensor, by: Turn) -> Tensor:
    """`x_HTD` with neighbouring channels turned as pairs; same dtype, computed in float32."""
    even_HTE, odd_HTE = x_HTD[..., 0::2].float(), x_HTD[..., 1::2].float()
    turned = torch.stack(
        (even_HTE * by.cos_TE - odd_HTE * by.sin_TE, even_HTE * by.sin_TE + odd_HTE * by.cos_TE),
        dim=-1,
    )
    return turned.flatten(-2).to(x_HTD.dtype)
