"""What happens to the queries, keys and values of new tokens before attention: one step, two forms.

Norm and turn of queries and keys, one scale a head, clamp, cast, and the write into the slots.
`unfused` is the fallback and the oracle: one op after the other, each rounding to the dtype of its
input. `fused` is one function in float32 that rounds once, whole for a compiler. Both write in
place; a write that is not declared as one is dropped by the compiler in silence.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from worker.ops import fp8, norm, rope


# H = heads of this rank, T = new tokens, S = slots of the cache, D = head width
@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """New tokens as they come out of the input product."""

    q_HTD: Tensor
    k_HTD: Tensor
    v_HTD: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the keys and values of one block go; tensors only, so that no number is compiled in."""

    keys_HSD: Tensor
    values_HSD: Tensor
    at_T: Tensor  # int64: the slot of each new token; consecutive, which the GPU's kernel relies on
    scales: fp8.HeadScales | None = None  # given for e4m3
    clamped_2H: Tensor | None = None  # int64: clamped so far, keys and values of each head


PreAttention = Callable[[Heads, rope.Turn, Place], Tensor]


def unfused(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """Fill the slots of `place`; returns the normed and turned q_HTD."""
    k_HTD = rope.rotated(norm.rms_norm(heads.k_HTD), turn)
    k_HTD, v_HTD = stored(k_HTD, heads.v_HTD, place)
    write_slots(place.keys_HSD, place.values_HSD, place.at_T, k_HTD, v_HTD)
    return rope.rotated(norm.rms_norm(heads.q_HTD), turn)


def fused(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """As `unfused`, with one rounding at the end.

    Per number the two differ by the roundings that `unfused` makes on its way: none for float32
    inputs but the order of the sums, a few units of bfloat16 otherwise; in e4m3 that moves a
    number by at most one step. On a GPU it is one kernel.
    """
    if heads.k_HTD.is_cuda:
        from worker.ops import pre_attention_cuda  # Triton is there with PyTorch for CUDA only

        return pre_attention_cuda.fused(heads, turn, place)
    q_HTD = rope.rotated(norm.rms_norm(heads.q_HTD.float()), turn)
    k_HTD = rope.rotated(norm.rms_norm(heads.k_HTD.float()), turn)
    k_HTD, v_HTD = stored(k_HTD, heads.v_HTD, place)
    _put(place.keys_HSD, place.at_T, k_HTD)
    _put(place.values_HSD, place.at_T, v_HTD)
    return q_HTD.to(heads.q_HTD.dtype)


def stored(k_HTD: Tensor, v_HTD: Tensor, place: Place) -> tuple[Tensor, Tensor]:
    """Both in the dtype of the cache; what had to be clamped is added to the counts."""
    if place.scales is None:
        return k_HTD.to(place.keys_HSD.dtype), v_HTD.to(place.values_HSD.dtype)
    k_HTD, clamped_keys_H = fp8.rounded(k_HTD, place.scales.key_H)
    v_HTD, clamped_values_H = fp8.rounded(v_HTD, place.scales.value_H)
    if place.clamped_2H is not None:
        place.clamped_2H.add_(torch.stack((clamped_keys_H, clamped_values_H)))
    return k_HTD, v_HTD


def write_slots(
    keys_HSD: Tensor, values_HSD: Tensor, at_T: Tensor, k_HTD: Tensor, v_HTD: Tensor
) -> None:
    """Copy the new tokens into their slots; the one place for a kernel of an accelerator."""
    torch.ops.steadyframe.write_slots(keys_HSD, values_HSD, at_T, k_HTD, v_HTD)


def _put(slots_HSD: Tensor, at_T: Tensor, new_HTD: Tensor) -> None:
    if slots_HSD.dtype == fp8.E4M3:  # an indexed copy knows bytes, not e4m3
        slots_HSD, new_HTD = slots_HSD.view(torch.uint8), new_HTD.view(torch.uint8)
    slots_HSD.index_copy_(1, at_T, new_HTD)


def _write_slots(
    keys_HSD: Tensor, values_HSD: Tensor, at_T: Tensor, k_HTD: Tensor, v_HTD: Tensor
) -> None:
    _put(keys_HSD, at_T, k_HTD)
    _put(values_HSD, at_T, v_HTD)


def _no_slots(*_: Tensor) -> None:
    """For shapes only: nothing is returned."""


WRITE_SLOTS: Mapping[str, Callable[..., None]] = MappingProxyType(
    {"CompositeExplicitAutograd": _write_slots, "Meta": _no_slots}
)


def _defined() -> torch.library.Library:
    """The op by its schema and not by `custom_op`, which imports the compiler into every rank."""
    library = torch.library.Library("steadyframe", "DEF")  # type: ignore[no-untyped-call] # torch's
    library.define(  # type: ignore[no-untyped-call] # as above
        "write_slots(Tensor(a!) keys, Tensor(b!) values, Tensor at, Tensor new_keys,"
        " Tensor new_values) -> ()"
    )
    for key, kernel in WRITE_SLOTS.items():
        library.impl("write_slots", kernel, key)  # type: ignore[no-untyped-call] # as above
    return library


_LIBRARY = _defined()  # forgotten, the op would be gone
