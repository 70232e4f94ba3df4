"""Position resets: three ways, each the oracle of the others, and the ways that are wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.worker.cache.drive import NUM_HEADS, ODD_MODEL, WIDE_MODEL, Session, steps_of
from tests.worker.cache.reference import relative_error
from worker.cache import contents as contents_
from worker.cache import reset
from worker.cache.contents import Origin
from worker.cache.recompute import RecomputeCache
from worker.cache.reset import MissingContentsError, PositionReset
from worker.cache.ring import advanced
from worker.cache.scales import CacheScales, calibrated
from worker.cache.write_time import WriteTimeCache
from worker.config import ModelConfig
from worker.ops import fp8, rope

_FLOAT32 = 2e-6
_FP8 = 0.05
_MODELS = pytest.mark.parametrize("model", [ODD_MODEL, WIDE_MODEL], ids=["odd", "wide"])


def _filled(
    model: ModelConfig, *, dtype: torch.dtype = torch.bfloat16, is_fp8: bool = False
) -> tuple[WriteTimeCache, Session]:
    """A full ring that has wrapped, and its session."""
    scales = None
    if is_fp8:
        other = _filled(model)[0]
        scales = calibrated(other.contents())
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=dtype, scales=scales)
    return cache, Session(model, cache, prefix_length=5, dtype=dtype).run(model.window + 1)


def _bytes(slots: Tensor) -> Tensor:
    return slots.contiguous().view(torch.uint8).clone()


@_MODELS
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_turning_the_window_keeps_every_byte_but_its_time_channels(
    model: ModelConfig,
    is_fp8: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Of production's 128 channels only the 44 of time: the other bytes are never rounded again."""
    cache, session = _filled(model, is_fp8=is_fp8)
    time, length = model.rope_split[0], session.prefix_length
    for block in range(model.num_blocks):
        keys, values = cache.read(block)
        before = (_bytes(keys[:, :length]), _bytes(keys[:, length:, time:]), _bytes(values))
        old = _bytes(keys[:, length:, :time])
        origin = cache.origin
        cache.turn_window(model.reset_period)
        keys, values = cache.read(block)
        after = (_bytes(keys[:, :length]), _bytes(keys[:, length:, time:]), _bytes(values))
        for ours, theirs in zip(before, after, strict=True):
            assert torch.equal(ours, theirs)
        assert not torch.equal(old, _bytes(keys[:, length:, :time]))
        assert cache.origin.base == origin.base + model.reset_period


@_MODELS
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_turning_the_prefix_keeps_every_byte_but_its_time_channels(
    model: ModelConfig,
    is_fp8: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    cache, session = _filled(model, is_fp8=is_fp8)
    time, length = model.rope_split[0], session.prefix_length
    keys, values = cache.read(0)
    before = (_bytes(keys[:, length:]), _bytes(keys[:, :length, time:]), _bytes(values))
    old = _bytes(keys[:, :length, :time])
    cache.turn_prefix(model.reset_period)
    keys, values = cache.read(0)
    after = (_bytes(keys[:, length:]), _bytes(keys[:, :length, time:]), _bytes(values))
    for ours, theirs in zip(before, after, strict=True):
        assert torch.equal(ours, theirs)
    assert not torch.equal(old, _bytes(keys[:, :length, :time]))


def _out_after(by: PositionReset | None, model: ModelConfig, *, is_fp8: bool, seed: int) -> Tensor:
    """Attention of the first frame after the first reset: one seed, one video, any way."""
    dtype = torch.bfloat16 if is_fp8 else torch.float32
    scales = None
    if is_fp8:
        first = WriteTimeCache(model, num_heads=NUM_HEADS)
        Session(model, first, prefix_length=5, seed=seed + 1).run(model.window)
        scales = calibrated(first.contents())
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=dtype, scales=scales)
    session = Session(model, cache, prefix_length=5, dtype=dtype, seed=seed)
    session.run(model.reset_period + model.window)
    assert session.at.shift == model.reset_period
    if by is not None:
        reset.apply(by, cache, session.at, clean=session.clean())
    # Queries at the same distance from both: the position is what the cache counts from.
    turn = contents_.frame_turn(model, session.at.num_frames - cache.origin.turned_back)
    query = rope.rotated(session.noise(model.tokens_per_frame), turn)
    return cache.attend(0, query)


@_MODELS
@pytest.mark.parametrize("by", [PositionReset.DELTA_WINDOW, PositionReset.DELTA_SINKS])
def test_every_way_gives_what_a_rebuild_gives(model: ModelConfig, by: PositionReset) -> None:
    """In float32 they are the same function: attention sees only distances."""
    seed = 7
    expected = _out_after(PositionReset.REBUILD, model, is_fp8=False, seed=seed)
    assert relative_error(_out_after(by, model, is_fp8=False, seed=seed), expected) < _FLOAT32


@_MODELS
@pytest.mark.parametrize("by", [PositionReset.DELTA_WINDOW, PositionReset.DELTA_SINKS])
def test_in_fp8_every_way_gives_what_a_rebuild_gives_but_for_rounding(
    model: ModelConfig, by: PositionReset
) -> None:
    seed = 8
    expected = _out_after(PositionReset.REBUILD, model, is_fp8=True, seed=seed)
    assert relative_error(_out_after(by, model, is_fp8=True, seed=seed), expected) < _FP8


@_MODELS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_reset_that_only_moves_the_counter_would_be_noticed(
    model: ModelConfig, dtype: torch.dtype
) -> None:
    """The negative control, and the fault of an open project: the keys keep their old angles."""
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=dtype)
    session = Session(model, cache, prefix_length=5, dtype=dtype)

    def only_count() -> None:
        cache._origin = Origin(turned_back=contents_.base_of(session.at))

    session.turn = only_count
    session.run(model.reset_period + model.window)
    before = session.worst
    session.errors.clear()
    session.step()
    assert session.worst > 10 * before
    assert session.pooled > 2 * _FP8


@pytest.mark.parametrize("kind", [WriteTimeCache, RecomputeCache])
def test_a_reset_that_was_forgotten_stops_the_step(
    kind: type[WriteTimeCache] | type[RecomputeCache],
) -> None:
    cache = kind(ODD_MODEL, num_heads=NUM_HEADS)
    session = Session(ODD_MODEL, cache, prefix_length=5)
    session.turn = lambda: None
    session.run(ODD_MODEL.reset_period + ODD_MODEL.window)
    with pytest.raises(AssertionError, match="the position reset was not applied"):
        session.step()


def test_the_ways_may_take_turns() -> None:
    """A flag may flip between two resets: the next finds what the last has left."""
    model = ODD_MODEL
    order = (
        PositionReset.DELTA_SINKS,
        PositionReset.DELTA_WINDOW,
        PositionReset.DELTA_SINKS,
        PositionReset.REBUILD,
        PositionReset.DELTA_WINDOW,
    )
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    session = Session(model, cache, prefix_length=5, dtype=torch.float32)
    session.run(model.window)
    for by in order:
        session.reset_by = by
        session.run(model.reset_period)
    assert contents_.base_of(session.at) == len(order) * model.reset_period
    assert session.worst < _FLOAT32


@_MODELS
def test_an_fp8_key_is_within_three_per_cent_and_after_a_reset_within_four(
    model: ModelConfig,
) -> None:
    """Rounded twice at most: the window is shorter than the period of the resets."""
    cache, session = _filled(model, is_fp8=True)
    clean = torch.stack([frame.k_BHTD for frame in session.clean().frames])
    once = torch.stack([frame.k_BHTD for frame in cache.contents().frames])
    cache.turn_window(model.reset_period)
    twice = torch.stack([frame.k_BHTD for frame in cache.contents().frames])
    assert 0.02 < relative_error(once, clean) < 0.03
    assert relative_error(once, clean) < relative_error(twice, clean) < 0.04


def test_two_resets_are_one_of_twice_the_shift_and_there_and_back_is_nothing() -> None:
    model = WIDE_MODEL
    cache, _ = _filled(model, dtype=torch.float32)
    twin = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    held = cache.contents()
    twin.load(held)
    start = twin.read(0)[0].clone()
    shift = model.reset_period
    cache.load(held)
    cache.turn_window(shift)
    cache.turn_window(shift)
    twin.turn_window(2 * shift)
    assert relative_error(cache.read(0)[0], twin.read(0)[0]) < _FLOAT32
    twin.turn_window(-2 * shift)
    assert relative_error(twin.read(0)[0], start) < _FLOAT32


def test_scores_within_the_window_do_not_notice_a_reset() -> None:
    """Both ends of a pair turn alike; in FP8 to the bound of two roundings."""
    model = WIDE_MODEL
    cache, session = _filled(model, is_fp8=True)
    length = session.prefix_length
    number = session.at.num_frames
    query = session.noise(model.tokens_per_frame)

    def scores() -> Tensor:
        turn = contents_.frame_turn(model, number - cache.origin.turned_back)
        keys = cache.read(0)[0][:, length:].float()
        return rope.rotated(query, turn).float() @ keys.transpose(1, 2)

    before = scores()
    cache.turn_window(model.reset_period)
    assert relative_error(scores(), before) < 0.04


_NUM_RESETS = 20  # a prefix lives as long as the session


def test_prefix_keys_do_not_drift() -> None:
    """Twenty resets later the bytes are those of one rounding, made from the bfloat16 master."""
    model = WIDE_MODEL
    cache, session = _filled(model, is_fp8=True)
    for _ in range(_NUM_RESETS):
        cache.turn_prefix(model.reset_period)
    fresh = WriteTimeCache(model, num_heads=NUM_HEADS, scales=_scales_of(cache))
    fresh.load(cache.contents())
    fresh.turn_prefix(_NUM_RESETS * model.reset_period)
    length = session.prefix_length
    assert torch.equal(_bytes(cache.read(0)[0][:, :length]), _bytes(fresh.read(0)[0][:, :length]))
    assert _prefix_error(cache, session) < 0.033


def test_prefix_keys_that_are_rounded_again_at_every_reset_would_be_noticed() -> None:
    """The negative control: turned as they lie, as a window's keys are."""
    model = WIDE_MODEL
    cache, session = _filled(model, is_fp8=True)
    keys = cache.read(0)[0][:, : session.prefix_length, : model.rope_split[0]]
    onward = rope.shift_turn(-model.reset_period, split=model.rope_split)
    for _ in range(_NUM_RESETS):
        turned = rope.rotated(keys.float(), onward)
        keys.copy_(fp8.rounded_units(turned)[0])
    cache._origin = replace(cache.origin, prefix_time=_NUM_RESETS * model.reset_period)
    assert _prefix_error(cache, session) > 0.10


def _scales_of(cache: WriteTimeCache) -> CacheScales:
    assert cache._scales is not None
    return cache._scales


def _prefix_error(cache: WriteTimeCache, session: Session) -> float:
    """Of the stored time channels, against the raw keys turned exactly."""
    model, length = cache._model, session.prefix_length
    keys = fp8.widened(cache.read(0)[0][:, :length], _scales_of(cache).key_BH[0])
    turn = contents_.prefix_turn(length, time=cache.origin.prefix_time, split=model.rope_split)
    exact = rope.rotated(session.clean().prefix.k_BHTD[0], turn)
    time = model.rope_split[0]
    return relative_error(keys[..., :time], exact[..., :time])


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
@pytest.mark.parametrize("name", ["turn_window", "turn_prefix"])
def test_a_compiled_reset_leaves_the_bytes_of_an_eager_one(
    name: str,
    is_fp8: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """A reset writes in place, which a compiler may lose."""
    cache, _ = _filled(ODD_MODEL, is_fp8=is_fp8)
    scales = _scales_of(cache) if is_fp8 else None
    caches = [WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=scales) for _ in range(2)]
    held = cache.contents()
    for twin in caches:
        twin.load(held)
    before = _bytes(caches[0].read(0)[0])
    getattr(caches[0], name)(ODD_MODEL.reset_period)
    turned: Callable[[int], None] = getattr(caches[1], name)
    compiled: Callable[[int], None] = torch.compile(turned, backend="aot_eager")
    compiled(ODD_MODEL.reset_period)
    assert caches[0].origin == caches[1].origin
    assert not torch.equal(before, _bytes(caches[0].read(0)[0]))
    for block in range(ODD_MODEL.num_blocks):
        for ours, theirs in zip(caches[0].read(block), caches[1].read(block), strict=True):
            assert torch.equal(_bytes(ours), _bytes(theirs))


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_a_compiled_oracle_attends_as_an_eager_one(is_fp8: bool) -> None:  # noqa: FBT001 - a parameter of the test
    filled, session = _filled(ODD_MODEL, is_fp8=is_fp8)
    cache = RecomputeCache(
        ODD_MODEL, num_heads=NUM_HEADS, scales=_scales_of(filled) if is_fp8 else None
    )
    cache.load(filled.contents())
    query = session.noise(ODD_MODEL.tokens_per_frame)
    compiled = torch.compile(cache.attend, backend="aot_eager")
    for shift in (0, ODD_MODEL.reset_period):
        cache.turn_window(shift)
        assert relative_error(compiled(1, query), cache.attend(1, query)) < 0.01


def test_turning_an_empty_ring_is_harmless() -> None:
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS)
    cache.turn_window(3)
    cache.turn_prefix(-3)
    assert cache.origin.base == 0


def test_a_rebuild_needs_the_contents_of_the_frame_before() -> None:
    cache, session = _filled(ODD_MODEL)
    with pytest.raises(MissingContentsError, match="none were given"):
        reset.rebuild(cache, session.at, clean=None)
    with pytest.raises(ValueError, match=f"allowed: {session.at.num_frames + 1}"):
        reset.rebuild(cache, advanced(session.at), clean=session.clean())


def test_without_a_shift_nothing_is_touched() -> None:
    cache, session = _filled(ODD_MODEL)
    before = _bytes(cache.read(0)[0])
    for by in PositionReset:
        reset.apply(by, cache, session.at)
    assert torch.equal(before, _bytes(cache.read(0)[0]))


def test_a_rebuild_forgets_a_fault() -> None:
    """The way back after a detected fault: not a byte of the old cache survives."""
    cache, session = _filled(ODD_MODEL, dtype=torch.float32)
    for slots in cache.read(0):
        slots.fill_(float("nan"))
    reset.rebuild(cache, session.at, clean=session.clean())
    session.errors.clear()
    assert session.run(steps_of(ODD_MODEL)).worst < _FLOAT32
