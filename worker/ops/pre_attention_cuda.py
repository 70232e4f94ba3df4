"""`pre_attention.fused` as one Triton kernel: norm, turn, scale, clamp, cast, scatter in one pass.

Reads each new query, key and value once and writes it once. In float32 inside and rounded once, as
the function it stands for. The new tokens have slots that follow one another, as in every frame of
a ring: told so, the compiler writes column-major values side by side, which is three times as fast.
Imported only where tensors are on a GPU.
"""

# A kernel takes pointers and numbers, and has no types of ours; shape suffixes.
# ruff: noqa: ANN001, ANN202, N803, N806, PLR0913
# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from worker.ops import norm

# Tokens a program and its warps: the fastest of those that were tried, see docs/benchmarks.md.
_TOKENS = 16
_WARPS = 8
_LARGEST = tl.constexpr(448.0)  # of e4m3


# T = new tokens, H = heads, D = head width, S = slots; strides in elements
@triton.jit
def _kernel(
    q_ptr, k_ptr, v_ptr, q_stride_H, q_stride_T, k_stride_H, k_stride_T, v_stride_H, v_stride_T,
    cos_ptr, sin_ptr, at_ptr, out_ptr,
    keys_ptr, keys_stride_H, keys_stride_S, keys_stride_D,
    values_ptr, values_stride_H, values_stride_S, values_stride_D,
    key_scale_ptr, value_scale_ptr, clamped_ptr, clamped_stride,
    T,
    EPSILON: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, TOKENS: tl.constexpr,
    IS_FP8: tl.constexpr, IS_COUNTED: tl.constexpr,
):  # fmt: skip
    """Queries, keys and values of a tile go to programs of their own: fewer registers each."""
    head, kind = tl.program_id(1), tl.program_id(2)
    token_T = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    channel_D = tl.arange(0, PADDED_D)
    is_there = (token_T < T)[:, None] & (channel_D < D)[None, :]
    if kind == 0:
        row = q_ptr + head * q_stride_H + token_T[:, None] * q_stride_T + channel_D[None, :]
        x = _turned(
            row, cos_ptr, sin_ptr, token_T, is_there, T, EPSILON, D, PADDED_D, TOKENS
        )  # fmt: skip
        out = out_ptr + (head * T + token_T[:, None]) * D + channel_D[None, :]
        tl.store(out, x.to(out_ptr.dtype.element_ty), mask=is_there)
    elif kind == 1:
        row = k_ptr + head * k_stride_H + token_T[:, None] * k_stride_T + channel_D[None, :]
        x = _turned(
            row, cos_ptr, sin_ptr, token_T, is_there, T, EPSILON, D, PADDED_D, TOKENS
        )  # fmt: skip
        if IS_FP8:
            x = _clamped(x, key_scale_ptr + head, clamped_ptr + head, is_there, IS_COUNTED)
        slot_T = tl.load(at_ptr) + token_T
        into = keys_ptr + head * keys_stride_H + slot_T[:, None] * keys_stride_S
        into += channel_D[None, :] * keys_stride_D
        tl.store(into, x.to(keys_ptr.dtype.element_ty), mask=is_there)
    else:
        row = v_ptr + head * v_stride_H + token_T[:, None] * v_stride_T + channel_D[None, :]
        x = tl.load(row, mask=is_there, other=0.0).to(tl.float32)
        if IS_FP8:
            counts = clamped_ptr + clamped_stride + head
            x = _clamped(x, value_scale_ptr + head, counts, is_there, IS_COUNTED)
        slot_T = tl.load(at_ptr) + token_T
        # Across, so that neighbours in a warp are neighbours in column-major memory.
        across = values_ptr + head * values_stride_H + slot_T[None, :] * values_stride_S
        across += channel_D[:, None] * values_stride_D
        stored = tl.trans(x.to(values_ptr.dtype.element_ty))
        tl.store(across, stored, mask=tl.trans(is_there))


@triton.jit
def _turned(
    row, cos_ptr, sin_ptr, token_T, is_there, T,
    EPSILON: tl.constexpr, D: tl.constexpr, PADDED_D: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """Normed over the head and turned, in float32; channels are turned as neighbouring pairs."""
    pair_E = tl.arange(0, PADDED_D // 2)
    is_pair = (token_T < T)[:, None] & (pair_E < D // 2)[None, :]
    at = token_T[:, None] * (D // 2) + pair_E[None, :]
    cos = tl.load(cos_ptr + at, mask=is_pair, other=1.0)
    sin = tl.load(sin_ptr + at, mask=is_pair, other=0.0)
    x = tl.load(row, mask=is_there, other=0.0).to(tl.float32)
    mean = tl.sum(x * x, axis=1) / D
    x = x * (1.0 / tl.sqrt_rn(mean + EPSILON))[:, None]
    even, odd = tl.split(tl.reshape(x, [TOKENS, PADDED_D // 2, 2]))
    both = tl.join(even * cos - odd * sin, even * sin + odd * cos)
    return tl.reshape(both, [TOKENS, PADDED_D])


@triton.jit
def _clamped(x, scale_ptr, count_ptr, is_there, IS_COUNTED: tl.constexpr):
    """In units of the scale within e4m3; what had to be clamped is counted, a NaN stays one."""
    x = tl.div_rn(x, tl.load(scale_ptr))
    if IS_COUNTED:
        is_out = (~(tl.abs(x) <= _LARGEST)) & is_there
        num = tl.sum(tl.sum(is_out.to(tl.int32), axis=1), axis=0)
        if num > 0:  # rarely: no traffic but in a step that has something to tell
            tl.atomic_add(count_ptr, num.to(tl.int64))
    is_number = x == x  # noqa: PLR0124 - false for a NaN alone
    return tl.where(is_number, tl.minimum(tl.maximum(x, -_LARGEST), _LARGEST), x)


def fused(heads: Any, turn: Any, place: Any) -> Tensor:
    """As `pre_attention.fused`, with the same arguments; `place.at_T` counts up by one."""
    q_HTD, k_HTD, v_HTD = heads.q_HTD, heads.k_HTD, heads.v_HTD
    H, T, D = q_HTD.shape
    assert all(x.stride(2) == 1 for x in (q_HTD, k_HTD, v_HTD)), "channels are not together"
    out_HTD = torch.empty((H, T, D), dtype=q_HTD.dtype, device=q_HTD.device)
    is_fp8, counts = place.scales is not None, place.clamped_2H
    nothing = turn.cos_TE  # where a kernel without FP8 never looks
    _kernel[(triton.cdiv(T, _TOKENS), H, 3)](
        q_HTD, k_HTD, v_HTD, *q_HTD.stride()[:2], *k_HTD.stride()[:2], *v_HTD.stride()[:2],
        turn.cos_TE, turn.sin_TE, place.at_T, out_HTD,
        place.keys_HSD, *place.keys_HSD.stride(),
        place.values_HSD, *place.values_HSD.stride(),
        place.scales.key_H if is_fp8 else nothing, place.scales.value_H if is_fp8 else nothing,
        counts if counts is not None else nothing, counts.stride(0) if counts is not None else 0,
        T,
        EPSILON=norm.EPSILON, D=D, PADDED_D=triton.next_power_of_2(D), TOKENS=_TOKENS,
        IS_FP8=is_fp8, IS_COUNTED=is_fp8 and counts is not None, num_warps=_WARPS,
    )  # fmt: skip
    return out_HTD
