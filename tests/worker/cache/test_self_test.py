"""The check of a format at start-up: passes what works, and names what does not."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from worker.cache import self_test, variants
from worker.cache.contents import Contents
from worker.cache.recompute import RecomputeCache
from worker.cache.scales import CacheScales, calibrated
from worker.cache.self_test import SelfTestError
from worker.cache.variants import KvCache
from worker.cache.write_time import WriteTimeCache
from worker.config import DEMO_MODEL, TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.ops import fp8, rope
from worker.ops.pre_attention import Heads, Place, PreAttention, fused, unfused

WIDE_WINDOW_MODEL = replace(TINY_MODEL, window=7, reset_period=42)
_MODELS = pytest.mark.parametrize(
    "model",
    [TINY_MODEL, TINY_EDGE_MODEL, DEMO_MODEL, WIDE_WINDOW_MODEL],
    ids=["tiny", "tiny-edge", "demo", "window of 7"],
)
_WRITTEN = pytest.mark.parametrize("variant", [KvCache.WRITE_TIME_BF16, KvCache.WRITE_TIME_FP8])


@_MODELS
@pytest.mark.parametrize("cache_dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("variant", KvCache)
@pytest.mark.parametrize("op", [unfused, fused])
def test_every_format_passes(
    model: ModelConfig, cache_dtype: str, variant: KvCache, op: PreAttention
) -> None:
    self_test.check(replace(model, cache_dtype=cache_dtype), variant, pre_attention=op)


def _without_the_last_token(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    shorter = replace(place, at_T=torch.cat([place.at_T[:-1], place.at_T[-2:-1]]))
    return unfused(heads, turn, shorter)


def _not_a_number(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    return unfused(heads, turn, place) * float("nan")


def _heads_swapped(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    return unfused(replace(heads, v_HTD=heads.v_HTD.flip(0)), turn, place)


def _not_turned(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    still = rope.Turn(torch.ones_like(turn.cos_TE), torch.zeros_like(turn.sin_TE))
    unfused(heads, still, place)
    return unfused(heads, turn, replace(place, keys_HSD=place.keys_HSD.clone()))


@pytest.mark.parametrize(
    "broken",
    [_without_the_last_token, _not_a_number, _heads_swapped, _not_turned],
    ids=lambda broken: broken.__name__.strip("_"),
)
@_WRITTEN
def test_a_broken_write_is_refused_in_the_first_step(
    variant: KvCache, broken: PreAttention
) -> None:
    """By name, step and size; a NaN is no small error."""
    sentence = rf"{variant.value} is off by (nan|0\.\d+|1\.\d+) in step 0; allowed: 0"
    with pytest.raises(SelfTestError, match=sentence):
        self_test.check(TINY_MODEL, variant, pre_attention=broken)


def test_a_wrong_scale_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one kind and one head alone: written with one number and read with another."""
    of_block = CacheScales.of_block

    def wrong(scales: CacheScales, block: int) -> fp8.HeadScales:
        right = of_block(scales, block)
        factor = torch.tensor([1.0, 1.5])
        return replace(right, value_H=right.value_H * factor)

    def read_wrongly(cache: WriteTimeCache, block: int, q_HTD: Tensor) -> Tensor:  # noqa: N803 - as the port
        assert cache._scales
        return fp8.attend(q_HTD, *cache.read(block), wrong(cache._scales, block))

    monkeypatch.setattr(WriteTimeCache, "attend", read_wrongly)
    with pytest.raises(SelfTestError, match=r"write_time_fp8 is off by .* in step 0"):
        self_test.check(TINY_MODEL, KvCache.WRITE_TIME_FP8, pre_attention=unfused)


def test_scales_that_clamp_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_small(contents: Contents, *, headroom: float) -> CacheScales:
        scales = calibrated(contents, headroom=headroom)
        return CacheScales(key_BH=scales.key_BH / 64, value_BH=scales.value_BH / 64)

    monkeypatch.setattr(variants, "calibrated", too_small)
    with pytest.raises(SelfTestError, match="write_time_fp8 is off by"):
        self_test.check(TINY_MODEL, KvCache.WRITE_TIME_FP8, pre_attention=unfused)


def _counter_of_window(cache: WriteTimeCache, shift: int) -> None:
    cache._origin = replace(cache._origin, turned_back=cache._origin.turned_back + shift)


def _counter_of_prefix(cache: WriteTimeCache, shift: int) -> None:
    cache._origin = replace(cache._origin, prefix_time=cache._origin.prefix_time + shift)


@_MODELS
@_WRITTEN
@pytest.mark.parametrize(
    ("name", "broken"),
    [("turn_window", _counter_of_window), ("turn_prefix", _counter_of_prefix)],
)
def test_a_reset_that_only_moves_the_counter_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    model: ModelConfig,
    variant: KvCache,
    name: str,
    broken: Callable[[WriteTimeCache, int], None],
) -> None:
    """Each way of a reset is taken once, whatever the window."""
    monkeypatch.setattr(WriteTimeCache, name, broken)
    with pytest.raises(SelfTestError, match=f"{variant.value} is off by"):
        self_test.check(model, variant, pre_attention=unfused)


@_WRITTEN
def test_a_ring_that_does_not_wrap_is_refused(
    monkeypatch: pytest.MonkeyPatch, variant: KvCache
) -> None:
    """The first frame that takes an old one's slots takes the wrong ones."""
    right = WriteTimeCache._slot_of

    def stuck(cache: WriteTimeCache, number: int) -> int:
        return right(cache, min(number, cache._model.window - 1))

    monkeypatch.setattr(WriteTimeCache, "_slot_of", stuck)
    step = TINY_MODEL.window
    with pytest.raises(SelfTestError, match=f"{variant.value} is off by .* in step {step};"):
        self_test.check(TINY_MODEL, variant, pre_attention=unfused)


def test_an_oracle_that_forgets_is_refused_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The two do not share the code that keeps frames: a fault of either shows."""
    right = RecomputeCache.turn_window
    monkeypatch.setattr(RecomputeCache, "turn_window", lambda cache, shift: right(cache, shift - 1))
    with pytest.raises((SelfTestError, AssertionError)):
        self_test.check(TINY_MODEL, KvCache.WRITE_TIME_BF16, pre_attention=unfused)
