"""Every cache over fill, wraps, resets and flips, each attention against float64."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.worker.cache.drive import NUM_HEADS, ODD_MODEL, WIDE_MODEL, Session, steps_of
from worker.cache import contents as contents_
from worker.cache.contents import KeyValueCache
from worker.cache.recompute import RecomputeCache
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor
from worker.cache.scales import CacheScales
from worker.cache.variants import KvCache, MissingScalesError, flipped, new
from worker.cache.write_time import WriteTimeCache
from worker.config import TINY_EDGE_MODEL, ModelConfig
from worker.ops.pre_attention import PreAttention, fused, unfused

# Relative errors of one head in one attention, the worst of a session, well above the largest that
# was seen: float32 4.5e-7, bfloat16 1.5e-2, FP8 6.1e-2 (root mean square 3.9e-2).
_FLOAT32 = 2e-6
_BFLOAT16 = 3e-2
_FP8_WORST = 0.10
_FP8 = 0.05  # root mean square over a session

_MODELS = pytest.mark.parametrize("model", [TINY_EDGE_MODEL, ODD_MODEL], ids=["tiny-edge", "odd"])
# As in production; what is not FP8 is in this, and so is the prefix beside it.
_BFLOAT16_MODEL = replace(ODD_MODEL, cache_dtype="bfloat16")
_ELEMENTS = pytest.mark.parametrize("model", [_BFLOAT16_MODEL, ODD_MODEL], ids=["bf16", "float32"])
_RESETS = pytest.mark.parametrize("by", PositionReset)


def _compiled(op: PreAttention) -> PreAttention:
    compiled: PreAttention = torch.compile(op, backend="aot_eager", fullgraph=True)
    return compiled


_OPS = pytest.mark.parametrize(
    "op",
    [unfused, fused, _compiled(unfused), _compiled(fused)],
    ids=["unfused", "fused", "unfused-aot", "fused-aot"],
)


def _calibrated(model: ModelConfig) -> CacheScales:
    """Scales as a session sets them: on its prefix and first window."""
    cache = WriteTimeCache(model, num_heads=NUM_HEADS)
    session = Session(model, cache, prefix_length=5).run(model.window)
    scales = flipped(session.cache, KvCache.WRITE_TIME_FP8, model)[1]
    assert scales is not None
    return scales


@_MODELS
@_RESETS
@_OPS
def test_a_ring_in_float32_is_exact_but_for_the_order_of_sums(
    model: ModelConfig, by: PositionReset, op: PreAttention
) -> None:
    """A slot index carries no meaning once the angle is in the key."""
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=torch.float32, pre_attention=op)
    session = Session(model, cache, prefix_length=5, dtype=torch.float32, reset_by=by)
    assert session.run(steps_of(model)).worst < _FLOAT32


@_MODELS
@_RESETS
def test_the_oracle_is_exact_but_for_the_order_of_sums(
    model: ModelConfig, by: PositionReset
) -> None:
    cache = RecomputeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    session = Session(model, cache, prefix_length=5, dtype=torch.float32, reset_by=by)
    assert session.run(steps_of(model)).worst < _FLOAT32


@_MODELS
@_RESETS
@_OPS
def test_a_ring_in_bfloat16_stays_within_its_roundings(
    model: ModelConfig, by: PositionReset, op: PreAttention
) -> None:
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, pre_attention=op)
    session = Session(model, cache, prefix_length=5, reset_by=by)
    assert session.run(steps_of(model)).worst < _BFLOAT16


@_MODELS
@_RESETS
@_OPS
def test_a_ring_in_fp8_stays_within_five_per_cent(
    model: ModelConfig, by: PositionReset, op: PreAttention
) -> None:
    """And no number of a calibrated session is ever clamped, whatever position it takes."""
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, scales=_calibrated(model), pre_attention=op)
    session = Session(model, cache, prefix_length=5, reset_by=by).run(steps_of(model))
    assert session.pooled < _FP8
    assert session.worst < _FP8_WORST
    assert int(cache.clamps.on_device_2BH.sum()) == 0


@pytest.mark.parametrize("by", [PositionReset.DELTA_WINDOW, PositionReset.DELTA_SINKS])
@pytest.mark.parametrize("op", [fused, _compiled(fused)], ids=["eager", "aot"])
def test_heads_window_and_period_of_production_stay_within_the_same_bounds(
    by: PositionReset, op: PreAttention
) -> None:
    """128 channels split 44 / 42 / 42, 7 frames, a reset after 42 steps; each format in turn."""
    model = WIDE_MODEL
    formats = (
        (torch.float32, None, _FLOAT32),
        (torch.bfloat16, None, _BFLOAT16),
        (torch.bfloat16, _calibrated(model), _FP8_WORST),
    )
    for dtype, scales, bound in formats:
        cache = WriteTimeCache(
            model, num_heads=NUM_HEADS, dtype=dtype, scales=scales, pre_attention=op
        )
        session = Session(model, cache, prefix_length=13, dtype=dtype, reset_by=by)
        assert session.run(steps_of(model)).worst < bound
        assert session.pooled < _FP8


@_MODELS
def test_the_oracle_with_fp8_in_every_call_stays_within_five_per_cent(model: ModelConfig) -> None:
    cache = RecomputeCache(model, num_heads=NUM_HEADS, scales=_calibrated(model))
    session = Session(model, cache, prefix_length=5).run(steps_of(model))
    assert session.pooled < _FP8


@pytest.mark.parametrize("prefix_length", [0, 1, 2, 10, 11])
@_RESETS
def test_any_length_of_the_prefix_will_do(prefix_length: int, by: PositionReset) -> None:
    """From none to as many as there is room for."""
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, dtype=torch.float32)
    session = Session(
        ODD_MODEL, cache, prefix_length=prefix_length, dtype=torch.float32, reset_by=by
    )
    assert session.run(steps_of(ODD_MODEL)).worst < _FLOAT32


@_OPS
@_RESETS
@_ELEMENTS
def test_a_flip_at_any_step_of_a_reset_cycle_does_no_harm(
    model: ModelConfig, by: PositionReset, op: PreAttention
) -> None:
    """Round and round through all variants: every step of the cycle sees every one begin."""
    order = (KvCache.WRITE_TIME_FP8, KvCache.RECOMPUTE, KvCache.WRITE_TIME_BF16)
    session = Session(
        model, new(KvCache.WRITE_TIME_BF16, model, num_heads=NUM_HEADS), prefix_length=5
    )
    session.reset_by = by
    session.step()
    scales: CacheScales | None = None
    # 4 steps a cycle and 3 variants have no common divisor: after 12 flips all pairs were there.
    for number in range(12 + steps_of(model)):
        variant = order[number % len(order)]
        session.cache, scales = flipped(
            session.cache, variant, model, scales=scales, pre_attention=op
        )
        session.step()
    assert session.pooled < _FP8
    assert session.worst < _FP8_WORST


@_ELEMENTS
def test_what_fp8_lost_is_gone_a_window_after_the_flip_back(model: ModelConfig) -> None:
    """No old key survives, and the prefix was kept whole."""
    bound = _FLOAT32 if model.cache_dtype == "float32" else _BFLOAT16
    session = Session(
        model,
        new(KvCache.WRITE_TIME_BF16, model, num_heads=NUM_HEADS),
        prefix_length=5,
        dtype=getattr(torch, model.cache_dtype),
    ).run(model.window)
    session.cache, scales = flipped(session.cache, KvCache.WRITE_TIME_FP8, model)
    session.run(model.window)
    session.cache, _ = flipped(session.cache, KvCache.WRITE_TIME_BF16, model, scales=scales)
    session.errors.clear()
    session.step()
    assert session.worst > _BFLOAT16 / 2
    session.run(model.window - 2)
    session.errors.clear()
    assert session.run(steps_of(model)).worst < bound


def test_a_session_has_one_set_of_scales() -> None:
    """Frozen: scales that follow the content would turn the same bytes into other numbers."""
    model = _BFLOAT16_MODEL
    session = Session(
        model, new(KvCache.WRITE_TIME_BF16, model, num_heads=NUM_HEADS), prefix_length=5
    ).run(2)
    session.cache, scales = flipped(session.cache, KvCache.WRITE_TIME_FP8, model)
    assert scales is not None
    before = (scales.key_BH.clone(), scales.value_BH.clone())
    session.run(steps_of(model))
    session.cache, _ = flipped(session.cache, KvCache.RECOMPUTE, model, scales=scales)
    _, again = flipped(session.cache, KvCache.WRITE_TIME_FP8, model, scales=scales)
    assert again is scales
    assert torch.equal(scales.key_BH, before[0])
    assert torch.equal(scales.value_BH, before[1])


def test_fp8_cannot_begin_a_session() -> None:
    with pytest.raises(MissingScalesError, match="calibrate on a cache of another variant"):
        new(KvCache.WRITE_TIME_FP8, ODD_MODEL, num_heads=NUM_HEADS)


# Each remainder of the window, so that a ring also begins away from its first slot.
_AFTER_HOURS = [3 * 3600 * 6, 10**9, 10**9 + 1]
_DTYPES: list[tuple[Callable[..., KeyValueCache], str]] = [
    (WriteTimeCache, "write_time"),
    (RecomputeCache, "recompute"),
]


@pytest.mark.parametrize("num_frames", _AFTER_HOURS)
@pytest.mark.parametrize("cache_of", [kind for kind, _ in _DTYPES], ids=[n for _, n in _DTYPES])
def test_positions_that_are_never_taken_back_stay_exact_after_hours(
    num_frames: int, cache_of: Callable[..., KeyValueCache]
) -> None:
    """`delta_sinks` counts on for ever: no table may end, and no angle may lose its digits."""
    model = ODD_MODEL
    cursor = RingCursor(
        window=model.window,
        reset_period=model.reset_period,
        num_frames=num_frames,
        position=model.window,
    )
    cache = cache_of(model, num_heads=NUM_HEADS, dtype=torch.float32)
    session = Session(
        model,
        cache,
        prefix_length=5,
        dtype=torch.float32,
        reset_by=PositionReset.DELTA_SINKS,
        cursor=cursor,
    )
    base = contents_.base_of(cursor)
    cache.turn_window(-base)
    cache.turn_prefix(base)
    session.run(steps_of(model))
    assert session.worst < _FLOAT32
    assert cache.origin.turned_back == 0
    assert cache.origin.prefix_time >= num_frames - model.window
