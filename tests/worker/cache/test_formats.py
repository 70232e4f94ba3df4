"""What the caches hold, to the byte: nothing is copied to read, nothing is read unwritten."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.worker.cache.drive import NUM_HEADS, ODD_MODEL, WIDE_MODEL, Session, steps_of
from tests.worker.cache.reference import relative_error
from worker.cache.contents import KeyValueCache
from worker.cache.recompute import RecomputeCache
from worker.cache.reset import PositionReset
from worker.cache.scales import CacheScales, calibrated
from worker.cache.write_time import WriteTimeCache
from worker.config import ModelConfig

_MODELS = pytest.mark.parametrize("model", [ODD_MODEL, WIDE_MODEL], ids=["odd", "wide"])
_SEED = 11


def _scales(model: ModelConfig) -> CacheScales:
    cache = WriteTimeCache(model, num_heads=NUM_HEADS)
    return calibrated(Session(model, cache, prefix_length=5).run(model.window).cache.contents())


def _bytes(slots: Tensor) -> Tensor:
    return slots.contiguous().view(torch.uint8)


def _in_order(cache: WriteTimeCache, slots: Tensor) -> Tensor:
    """Ring slots as an ordered cache has them: the oldest frame first."""
    length, tokens = slots.shape[1] - cache._num_kept * cache._tokens, cache._tokens
    prefix, ring = slots[:, :length], slots[:, length:]
    if cache._num_kept < cache._model.window:
        return slots
    head = (cache._num_frames - cache._first_number) % cache._model.window * tokens
    return torch.cat([prefix, ring[:, head:], ring[:, :head]], dim=1)


@_MODELS
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_a_ring_put_in_order_has_the_bytes_of_the_oracle(
    model: ModelConfig,
    is_fp8: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Turned and rounded once or in every call: the same numbers, through fill, wrap and reset."""
    scales = _scales(model) if is_fp8 else None
    ring = WriteTimeCache(model, num_heads=NUM_HEADS, scales=scales)
    oracle = RecomputeCache(model, num_heads=NUM_HEADS, scales=scales)
    sessions = [
        Session(model, cache, prefix_length=5, seed=_SEED, reset_by=PositionReset.REBUILD)
        for cache in (ring, oracle)
    ]
    # A rebuild rounds what it stores from float32, a write from bfloat16: only where no reset has
    # been since may every byte be compared.
    for _ in range(model.reset_period + model.window):
        for session in sessions:
            session.step()
        for block in range(model.num_blocks):
            for ours, theirs in zip(ring.read(block), oracle.read(block), strict=True):
                length = sessions[0].prefix_length
                assert torch.equal(
                    _bytes(_in_order(ring, ours))[:, length:], _bytes(theirs)[:, length:]
                )


@_MODELS
@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_the_same_session_twice_gives_the_same_bytes(
    model: ModelConfig,
    is_fp8: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    scales = _scales(model) if is_fp8 else None
    caches = [WriteTimeCache(model, num_heads=NUM_HEADS, scales=scales) for _ in range(2)]
    for cache in caches:
        Session(model, cache, prefix_length=5, seed=_SEED).run(steps_of(model))
    for ours, theirs in zip(caches[0].read(0), caches[1].read(0), strict=True):
        assert torch.equal(_bytes(ours), _bytes(theirs))


@pytest.mark.parametrize("is_fp8", [False, True], ids=["bf16", "fp8"])
def test_reading_copies_nothing(is_fp8: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """Views at one address for the whole session, FP8 values column-major as kernels take them."""
    model = ODD_MODEL
    cache = WriteTimeCache(model, num_heads=NUM_HEADS, scales=_scales(model) if is_fp8 else None)
    session = Session(model, cache, prefix_length=5)
    seen = set()
    for _ in range(steps_of(model)):
        session.step()
        keys, values = cache.read(1)
        seen.add((keys.data_ptr(), values.data_ptr()))
        assert keys.untyped_storage().data_ptr() == cache._keys.untyped_storage().data_ptr()
        assert values.untyped_storage().data_ptr() == cache._values.untyped_storage().data_ptr()
        assert keys.stride(-1) == 1
        assert values.stride(-2 if is_fp8 else -1) == 1
    assert len(seen) == 1


def test_advancing_a_full_ring_moves_no_byte() -> None:
    """Opening a frame changes integers only; the oracle slides its window by copying."""
    model = ODD_MODEL
    ring = WriteTimeCache(model, num_heads=NUM_HEADS)
    oracle = RecomputeCache(model, num_heads=NUM_HEADS)
    for cache, is_moved in ((ring, False), (oracle, True)):
        session = Session(model, cache, prefix_length=5).run(model.window)
        before = cache._keys.clone()
        cache.open_frame(session.at)
        assert torch.equal(before, cache._keys) is not is_moved


@pytest.mark.parametrize(
    "cache_of",
    [
        lambda: WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS),
        lambda: WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=_scales(ODD_MODEL)),
        lambda: RecomputeCache(ODD_MODEL, num_heads=NUM_HEADS),
    ],
    ids=["write-time-bf16", "write-time-fp8", "recompute"],
)
@pytest.mark.parametrize("prefix_length", [1, 4])
@pytest.mark.parametrize("num_kept", [0, 1, 2])
def test_no_slot_is_read_before_it_was_written(
    cache_of: Callable[[], WriteTimeCache | RecomputeCache], prefix_length: int, num_kept: int
) -> None:
    """Every slot poisoned, few frames loaded, far into a session: nothing may touch a NaN.

    A ring that is loaded with fewer frames than its window has to fill from its first slot, for
    its valid slots are told by two numbers.
    """
    cache = cache_of()
    cache._keys.fill_(float("nan"))
    cache._values.fill_(float("nan"))
    session = Session(ODD_MODEL, cache, prefix_length=prefix_length).run(ODD_MODEL.window + 1)
    held = cache.contents()
    cache._keys.fill_(float("nan"))
    cache._values.fill_(float("nan"))
    cache.load(replace(held, frames=held.frames[len(held.frames) - num_kept :]))
    # The reference knows the frames that were left out; what is asked here is only for NaNs.
    session.errors.clear()
    session.run(steps_of(ODD_MODEL))
    assert session.worst < float("inf")
    session.errors.clear()
    session.run(1)
    assert session.worst < 0.10


def test_what_was_loaded_is_held() -> None:
    """Any format to any format: in float32 nothing is lost but the order of two turns."""
    model = ODD_MODEL
    first = RecomputeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    session = Session(model, first, prefix_length=5, dtype=torch.float32).run(model.window + 2)
    held = session.cache.contents()
    second = WriteTimeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    second.load(held)
    third = RecomputeCache(model, num_heads=NUM_HEADS, dtype=torch.float32)
    third.load(second.contents())
    again = third.contents()
    assert (again.num_frames, again.base) == (held.num_frames, held.base)
    assert torch.equal(again.prefix.k_BHTD, held.prefix.k_BHTD)
    for ours, theirs in zip(again.frames, held.frames, strict=True):
        assert torch.equal(ours.v_BHTD, theirs.v_BHTD)
        assert relative_error(ours.k_BHTD, theirs.k_BHTD) < 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [WriteTimeCache, RecomputeCache])
@pytest.mark.parametrize("num_steps", range(2, 3 + 2 * ODD_MODEL.window))
def test_contents_are_copies_and_may_be_loaded_where_they_come_from(
    kind: type[WriteTimeCache] | type[RecomputeCache], dtype: torch.dtype, num_steps: int
) -> None:
    """At every place in the ring: what is told is not a view of slots that are written again."""
    cache: KeyValueCache = kind(ODD_MODEL, num_heads=NUM_HEADS, dtype=dtype)
    session = Session(ODD_MODEL, cache, prefix_length=5, dtype=dtype).run(num_steps)
    held, kept = cache.contents(), cache.contents()
    cache.load(held)
    again = cache.contents()
    session.run(ODD_MODEL.window)
    bound = 1e-6 if dtype is torch.float32 else 1e-2
    for ours, theirs, first in zip(again.frames, held.frames, kept.frames, strict=True):
        assert torch.equal(ours.v_BHTD, theirs.v_BHTD)
        assert torch.equal(first.v_BHTD, theirs.v_BHTD)
        assert relative_error(ours.k_BHTD, theirs.k_BHTD) < bound
    assert session.worst < (2e-6 if dtype is torch.float32 else 3e-2)


@pytest.mark.parametrize("kind", [WriteTimeCache, RecomputeCache])
def test_contents_that_do_not_fit_are_refused(
    kind: type[WriteTimeCache] | type[RecomputeCache],
) -> None:
    cache: KeyValueCache = kind(ODD_MODEL, num_heads=NUM_HEADS)
    held = Session(ODD_MODEL, cache, prefix_length=5).run(ODD_MODEL.window).cache.contents()
    with pytest.raises(ValueError, match="6 frames; allowed: up to the window of 3"):
        cache.load(replace(held, frames=held.frames * 2))
    with pytest.raises(ValueError, match="prefix has 21 tokens; allowed: up to 11"):
        cache.load(
            replace(
                held,
                prefix=held.frames[0].__class__(
                    k_BHTD=torch.zeros(2, NUM_HEADS, 21, 16),
                    v_BHTD=torch.zeros(2, NUM_HEADS, 21, 16),
                ),
            )
        )
