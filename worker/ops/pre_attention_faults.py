"""Two forms of `pre_attention` that are right when run eagerly and wrong when compiled.

For demonstrations and as negative controls: a canary that no eager test can stop, and that the
start of a compiled worker must refuse. Each is a fault that others have shipped.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.ops.pre_attention`

import torch
from torch import Tensor

from worker.ops import norm, pre_attention, rope
from worker.ops.pre_attention import Heads, Place


def undeclared(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """As `fused`, by a write whose schema does not say that it writes.

    A compiler sees an op without result and without effect, and leaves it out: attention then
    reads what was in the slots before.
    """
    k_HTD = rope.rotated(norm.rms_norm(heads.k_HTD.float()), turn)
    k_HTD, v_HTD = pre_attention.stored(k_HTD, heads.v_HTD, place)
    torch.ops.steadyframe_demo.write_slots(
        place.keys_HSD, place.values_HSD, place.at_T, k_HTD, v_HTD
    )
    q_HTD = rope.rotated(norm.rms_norm(heads.q_HTD.float()), turn)
    return q_HTD.to(heads.q_HTD.dtype)


class Counting:
    """As `fused`, with a cursor of its own: the tokens written so far, a Python number.

    A compiler takes such a number for a constant, so every call needs a graph of its own, until
    there are more than torch allows.
    """

    def __init__(self) -> None:
        self.num_written = 0

    def __call__(self, heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
        """See `pre_attention.fused`."""
        self.num_written += heads.k_HTD.shape[1]
        return pre_attention.fused(heads, turn, place)


def _defined() -> torch.library.Library:
    library = torch.library.Library("steadyframe_demo", "DEF")  # type: ignore[no-untyped-call] # torch's
    library.define(  # type: ignore[no-untyped-call] # as above
        "write_slots(Tensor keys, Tensor values, Tensor at, Tensor new_keys, Tensor new_values)"
        " -> ()"
    )
    for key in ("CompositeExplicitAutograd", "Meta"):
        library.impl("write_slots", pre_attention.WRITE_SLOTS[key], key)  # type: ignore[no-untyped-call] # as above
    return library


_LIBRARY = _defined()  # forgotten, the op would be gone
