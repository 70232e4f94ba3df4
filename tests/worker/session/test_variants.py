"""Every variant of a session against the plainest one, latent by latent, and flips between them."""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.worker.session import drive
from tests.worker.session.drive import Drive, error, steps_of
from worker import flags
from worker.cache import variants
from worker.cache.contents import Contents
from worker.cache.scales import CacheScales, calibrated
from worker.cache.write_time import WriteTimeCache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.model import weights
from worker.model.weights import BlockWeights, Weights

# Two passes: one that the next frame must not see, and one that it must.
EDGE_MODEL = replace(TINY_EDGE_MODEL, num_passes=2)
BFLOAT16_MODEL = replace(EDGE_MODEL, cache_dtype="bfloat16")
WINDOW = EDGE_MODEL.window
NUM_STEPS = steps_of(EDGE_MODEL)
# The worst step of a session, as `drive.error`, well above the largest that was seen: float32
# 3e-7, bfloat16 5e-4, FP8 6e-3, another context after a rebuild 1.3e-2.
FLOAT32 = 2e-6
BFLOAT16 = 2e-3
FP8 = 1.5e-2
CONTEXT = 3e-2

KV_CACHE, POSITION_RESET, PRE_ATTENTION = (
    flags.REGISTRY[name].allowed(has_demo_variants=False)
    for name in ("kv_cache", "position_reset", "pre_attention")
)
_RESETS = pytest.mark.parametrize("position_reset", POSITION_RESET)


def bound(model: ModelConfig, kv_cache: str) -> float:
    if kv_cache == "write_time_fp8":
        return FP8
    return FLOAT32 if model.cache_dtype == "float32" else BFLOAT16


@functools.cache
def plainest(position_reset: str, model: ModelConfig = EDGE_MODEL) -> tuple[Tensor, ...]:
    """The plain set in float32, with the reset of whoever asks: nothing is stored turned.

    The reset has to be the same: a rebuild computes its frames in a shorter context.
    """
    chosen = {**flags.plain(), "position_reset": position_reset}
    return tuple(Drive(model, chosen).run(2 * steps_of(model)))


def worst(ours: list[Tensor], theirs: tuple[Tensor, ...]) -> float:
    """The largest error of any step that `ours` has taken."""
    return drive.worst(ours, theirs[: len(ours)])


@pytest.mark.parametrize("model", [EDGE_MODEL, BFLOAT16_MODEL], ids=["float32", "bfloat16"])
@_RESETS
@pytest.mark.parametrize("kv_cache", KV_CACHE)
@pytest.mark.parametrize("pre_attention", PRE_ATTENTION)
def test_every_combination_makes_the_latents_of_the_plain_one(
    model: ModelConfig, kv_cache: str, position_reset: str, pre_attention: str
) -> None:
    """Over fill, wrap and two resets: an error of one step would steer every later one."""
    chosen = {
        "kv_cache": kv_cache,
        "position_reset": position_reset,
        "pre_attention": pre_attention,
    }
    found = Drive(model, chosen).run(NUM_STEPS)
    assert worst(found, plainest(position_reset)) < bound(model, kv_cache)


@_RESETS
def test_a_model_of_another_window_is_no_other_case(position_reset: str) -> None:
    """A window of 4 and a period of 10: neither divides the other."""
    found = Drive(TINY_MODEL, {"position_reset": position_reset}).run(steps_of(TINY_MODEL))
    assert worst(found, plainest(position_reset, TINY_MODEL)) < FLOAT32


def test_a_rebuild_gives_the_frames_a_shorter_past_and_no_other_reset_does() -> None:
    """So a rebuild is no oracle to the last digit: at its step the video moves more than by FP8."""
    turned, moved_on, rebuilt = (
        plainest(way) for way in ("delta_window", "delta_sinks", "rebuild")
    )
    assert drive.worst(turned, moved_on) < FLOAT32
    assert drive.worst(rebuilt, turned) < CONTEXT
    # Exact until the first reset, and again as the window forgets it.
    first = EDGE_MODEL.reset_period + WINDOW
    assert drive.worst(rebuilt[:first], turned[:first]) == 0
    assert error(rebuilt[first], turned[first]) > FP8 / 2
    assert error(rebuilt[first + WINDOW], turned[first + WINDOW]) < FP8 / 10


@_RESETS
@pytest.mark.parametrize("at", range(NUM_STEPS - WINDOW))
@pytest.mark.parametrize(
    "there",
    [{"kv_cache": "recompute"}, {"kv_cache": "write_time_bf16", "pre_attention": "fused"}],
    ids=lambda there: "+".join(there.values()),
)
def test_a_flip_at_any_step_changes_nothing_in_float32(
    there: Mapping[str, str], at: int, position_reset: str
) -> None:
    """There for two steps and back again, through two resets."""
    session = Drive(EDGE_MODEL, {"position_reset": position_reset})
    found = session.run(at)
    session.take(**there, position_reset=position_reset)
    found += session.run(2)
    session.take(position_reset=position_reset)
    found += session.run(NUM_STEPS - at - 2)
    assert worst(found, plainest(position_reset)) < FLOAT32


@pytest.mark.parametrize("at", range(NUM_STEPS - WINDOW))
@pytest.mark.parametrize("ways", list(itertools.permutations(POSITION_RESET[::2])))
def test_the_way_of_the_reset_may_change_at_any_step(ways: tuple[str, str], at: int) -> None:
    """What was turned by one way is known to the other."""
    session = Drive(EDGE_MODEL, {"position_reset": ways[0]})
    found = session.run(at)
    session.take(position_reset=ways[1])
    assert worst(found + session.run(NUM_STEPS - at), plainest("delta_window")) < FLOAT32


@pytest.mark.parametrize("at", range(NUM_STEPS - WINDOW))
@pytest.mark.parametrize("pre_attention", PRE_ATTENTION)
@pytest.mark.parametrize("model", [EDGE_MODEL, BFLOAT16_MODEL], ids=["float32", "bfloat16"])
def test_a_flip_to_fp8_at_any_step_stays_within_its_bound_and_is_forgotten(
    model: ModelConfig, pre_attention: str, at: int
) -> None:
    """The prefix was kept whole beside: no later step is off by what FP8 had done to it."""
    session = Drive(model, {"pre_attention": pre_attention})
    found = session.run(at)
    session.take(kv_cache="write_time_fp8", pre_attention=pre_attention)
    found += session.run(2)
    session.take(pre_attention=pre_attention)
    found += session.run(NUM_STEPS - 2)
    expected = plainest("delta_window")
    assert worst(found, expected) < FP8
    # An error wanes by about ten in each window, and a reset is in the way.
    assert error(found[-1], expected[len(found) - 1]) < bound(model, "write_time_bf16")


def test_fp8_that_was_asked_for_at_the_start_begins_with_the_full_window() -> None:
    """Until then there is nothing to set scales on; a flip before it waits likewise."""
    early = Drive(EDGE_MODEL, {"kv_cache": "write_time_fp8"})
    asked = Drive(EDGE_MODEL)
    asked.step()
    asked.take(kv_cache="write_time_fp8")
    seen = [early.session.format]
    for _ in range(WINDOW + 1):
        early.step()
        seen.append(early.session.format)
    assert seen == ["write_time_bf16"] * WINDOW + ["write_time_fp8"] * 2
    assert asked.session.format == "write_time_bf16"
    asked.step()
    assert asked.session.format == "write_time_fp8"


def test_a_session_has_one_set_of_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever flips, resets and changes of prompt it sees."""
    seen: list[CacheScales] = []

    def counted(contents: Contents, *, headroom: float) -> CacheScales:
        seen.append(calibrated(contents, headroom=headroom))
        return seen[-1]

    monkeypatch.setattr(variants, "calibrated", counted)
    session = Drive(EDGE_MODEL, {"kv_cache": "write_time_fp8", "position_reset": "rebuild"})
    session.run(NUM_STEPS)
    for kv_cache in (*KV_CACHE, "write_time_fp8"):
        session.take(kv_cache=kv_cache)
        session.step()
    session.change_prompt(length=9, prompt_seed=1)
    session.run(NUM_STEPS)
    assert len(seen) == 1
    assert session.session.format == "write_time_fp8"


def _counter_only(cache: WriteTimeCache, shift: int) -> None:
    cache._origin = replace(cache._origin, turned_back=cache._origin.turned_back + shift)


@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "write_time_fp8"])
def test_a_reset_that_only_moves_the_counter_would_be_noticed(
    monkeypatch: pytest.MonkeyPatch, kv_cache: str
) -> None:
    """The negative control: peers do just this, and their video jumps."""
    monkeypatch.setattr(WriteTimeCache, "turn_window", _counter_only)
    found = Drive(EDGE_MODEL, {"kv_cache": kv_cache}).run(NUM_STEPS)
    assert worst(found, plainest("delta_window")) > 2 * FP8


def _spread(held: Weights, num_heads: int) -> Weights:
    """The same function, with values that differ by 2^20 between the heads."""

    def spread(block: BlockWeights) -> BlockWeights:
        width = block.output_DK.shape[0]
        sizes = 2.0 ** torch.linspace(-10, 10, num_heads).round()
        size_of_row = sizes.repeat_interleave(width // num_heads)
        block_in, block_out = block.input_ND.clone(), block.output_DK.clone()
        block_in[2 * width : 3 * width] *= size_of_row[:, None]
        block_out[:, :width] /= size_of_row
        return replace(block, input_ND=block_in, output_DK=block_out)

    return replace(held, blocks=tuple(map(spread, held.blocks)))


def _one_for_all(contents: Contents, *, headroom: float) -> CacheScales:
    scales = calibrated(contents, headroom=headroom)
    return CacheScales(
        key_BH=scales.key_BH.amax().expand_as(scales.key_BH).clone(),
        value_BH=scales.value_BH.amax().expand_as(scales.value_BH).clone(),
    )


@pytest.mark.parametrize(
    ("calibration", "is_within"),
    [(calibrated, True), (_one_for_all, False)],
    ids=["a scale a head", "one scale for all"],
)
def test_heads_of_very_different_size_need_a_scale_each(
    monkeypatch: pytest.MonkeyPatch, calibration: Callable[..., CacheScales], *, is_within: bool
) -> None:
    """The second is the negative control: it loses the small heads."""
    monkeypatch.setattr(variants, "calibrated", calibration)
    held = weights.draw(EDGE_MODEL, rank=0, num_ranks=1)
    session = Drive(
        EDGE_MODEL,
        {"kv_cache": "write_time_fp8"},
        held=_spread(held, EDGE_MODEL.num_heads),
    )
    found = session.run(NUM_STEPS)
    assert (worst(found, plainest("delta_window")) < FP8) is is_within
