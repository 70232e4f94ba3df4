"""Faults to be caught: each is one that others have shipped."""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is in `worker.ops.pre_attention`

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker import flags as flag_registry
from worker.cache import contents as contents_
from worker.cache.contents import Origin
from worker.cache.ring import RingCursor
from worker.cache.write_time import WriteTimeCache
from worker.engine.session import Chosen, SessionCompute
from worker.model.transformer import Reduce
from worker.ops import norm, pre_attention, rope
from worker.ops.pre_attention import Heads, Place, PreAttention
from worker.probes.subject import MODELS, Subject


def subject(preset: str = "tiny-edge", **flags: str) -> Subject:
    """Right code."""
    return Subject(model=MODELS[preset], flags=flag_registry.fallback() | flags)


def with_op(op: PreAttention, **flags: str) -> Subject:
    """`op` in place of what comes before attention."""

    def chosen_of(chosen: Mapping[str, str]) -> Chosen:
        return replace(Chosen.of(chosen), pre_attention=op)

    return replace(subject(**flags), chosen_of=chosen_of)


class OnlyCounts(SessionCompute):
    """A reset that moves the counter and leaves the keys where they were."""

    def _reset(self, cursor: RingCursor, *, reduce: Reduce) -> None:
        del reduce
        assert isinstance(self._cache, WriteTimeCache)
        self._cache._origin = Origin(turned_back=contents_.base_of(cursor))


class TouchesValues(SessionCompute):
    """A reset that rounds every value once more."""

    def _reset(self, cursor: RingCursor, *, reduce: Reduce) -> None:
        super()._reset(cursor, reduce=reduce)
        assert isinstance(self._cache, WriteTimeCache)
        self._cache._values.mul_(1 + 2**-20)


class ForgetsConversion(SessionCompute):
    """A flip that begins an empty cache."""

    def take(self, chosen: Chosen) -> None:
        was = self._cache
        super().take(chosen)
        if self._cache is not was and isinstance(self._cache, WriteTimeCache):
            self._cache._values.zero_()


def reads_back(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """The `.item()` in a kernel."""
    assert heads.k_HTD.abs().max().item() >= 0
    return pre_attention.unfused(heads, turn, place)


def selects(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """A mask as an index: how many it picks has to be known."""
    assert heads.k_HTD[heads.k_HTD > 0].ndim == 1
    return pre_attention.unfused(heads, turn, place)


def not_a_number(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """One NaN in one query."""
    q_HTD = pre_attention.unfused(heads, turn, place)
    q_HTD[0, 0, 0] = float("nan")
    return q_HTD


def undeclared_write(write: Callable[..., None]) -> PreAttention:
    """As `fused`, by an op whose schema does not say that it writes."""

    def op(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
        k_HTD = rope.rotated(norm.rms_norm(heads.k_HTD), turn)
        write(place.keys_HSD, place.values_HSD, place.at_T, k_HTD, heads.v_HTD)
        return rope.rotated(norm.rms_norm(heads.q_HTD), turn)

    return op


class ProductByLength:
    """A product compiled for every number of tokens that comes along."""

    def __init__(self, form: Callable[[Any], Any]) -> None:
        self._product = form(F.linear)

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        del is_first_forward
        total_TD: Tensor = self._product(joined_TK, weight_DK)
        return total_TD


class Counting:
    """A cursor that is a Python number on an object: compiled in, so another graph every call."""

    def __init__(self) -> None:
        self.num_written = 0

    def __call__(self, heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
        self.num_written += heads.k_HTD.shape[1]
        return pre_attention.fused(heads, turn, place) + 0 * self.num_written
