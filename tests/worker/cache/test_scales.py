"""Scales of the FP8 cache: what they leave room for, and what happens beyond."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from tests.worker.cache.drive import NUM_HEADS, ODD_MODEL, Session, steps_of
from tests.worker.cache.reference import relative_error
from worker.cache.contents import Contents, Tokens
from worker.cache.scales import CacheScales, CalibrationError, ClampCounts, calibrated
from worker.cache.write_time import WriteTimeCache
from worker.config import ConfigError
from worker.ops import fp8

_BLOCKS, _WIDTH = ODD_MODEL.num_blocks, ODD_MODEL.head_width
_NO_SPREAD = (1.0, 1.0, 1.0)


def _tokens(num: int, spread: Sequence[float] = _NO_SPREAD, *, grown: float = 1.0) -> Tokens:
    generator = torch.Generator().manual_seed(random.getrandbits(63))
    shape = (_BLOCKS, NUM_HEADS, num, _WIDTH)
    size = torch.tensor(spread)[:, None, None] * grown
    return Tokens(
        k_BHTD=torch.randn(shape, generator=generator) * size,
        v_BHTD=torch.randn(shape, generator=generator) * size,
    )


def _contents(spread: Sequence[float] = _NO_SPREAD) -> Contents:
    frames = tuple(_tokens(ODD_MODEL.tokens_per_frame, spread) for _ in range(ODD_MODEL.window))
    return Contents(prefix=_tokens(5, spread), frames=frames, num_frames=len(frames), base=0)


# Of a whole window's keys or values of one head; the largest in 600 windows was 3.1 %.
_ROUNDING = 0.035


def _head_errors(contents: Contents, scales: CacheScales) -> list[float]:
    """Keys and values of every block and head, through an FP8 cache and back."""
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=scales)
    cache.load(contents)
    errors = []
    for kind in ("k_BHTD", "v_BHTD"):
        ours, theirs = (
            torch.cat([getattr(frame, kind) for frame in held.frames], dim=2)
            for held in (cache.contents(), contents)
        )
        errors += [
            relative_error(ours[block, head], theirs[block, head])
            for block in range(_BLOCKS)
            for head in range(NUM_HEADS)
        ]
    return errors


@pytest.mark.parametrize("headroom", [1.0, 4.0, 8.0, 64.0, 256.0])
def test_headroom_costs_no_precision(headroom: float) -> None:
    """e4m3 is a float: the same rounding at any headroom."""
    contents = _contents()
    assert max(_head_errors(contents, calibrated(contents, headroom=headroom))) < _ROUNDING


_SPREAD = (2.0**-10, 1.0, 2.0**10)


def test_heads_that_differ_by_a_thousand_keep_their_precision() -> None:
    contents = _contents(_SPREAD)
    assert max(_head_errors(contents, calibrated(contents))) < _ROUNDING


def test_one_scale_for_all_heads_would_be_noticed() -> None:
    """The negative control: the smallest head is lost. Milder data could not tell the two apart."""
    contents = _contents(_SPREAD)
    of_heads = calibrated(contents)
    shared = CacheScales(
        key_BH=of_heads.key_BH.amax().expand_as(of_heads.key_BH),
        value_BH=of_heads.value_BH.amax().expand_as(of_heads.value_BH),
    )
    assert max(_head_errors(contents, shared)) > 0.5


def test_scales_of_swapped_heads_would_be_noticed() -> None:
    contents = _contents(_SPREAD)
    scales = calibrated(contents)
    swapped = CacheScales(key_BH=scales.key_BH.flip(1), value_BH=scales.value_BH.flip(1))
    assert max(_head_errors(contents, swapped)) > 0.5


def test_without_headroom_no_position_and_no_reset_carries_a_key_out_of_range() -> None:
    """Raw pairs lie diagonal, and a turn makes one channel as long as both: the radius is kept."""
    contents = _contents()
    diagonal = torch.ones_like(contents.frames[0].k_BHTD)
    contents = replace(
        contents, frames=(replace(contents.frames[0], k_BHTD=diagonal),) * 3, prefix=_empty()
    )
    scales = calibrated(contents, headroom=1.0)
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=scales)
    for base in range(-50, 50):
        cache.load(replace(contents, base=base))
        cache.turn_window(7)
        assert int(cache.clamps.on_device_2BH[0].sum()) == 0
    by_largest_number = CacheScales(
        key_BH=diagonal.abs().amax(dim=(-2, -1)) / fp8.LARGEST, value_BH=scales.value_BH
    )
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=by_largest_number)
    for base in range(50):
        cache.load(replace(contents, base=base))
        cache.turn_window(7)
    # By the largest number they would have been.
    assert int(cache.clamps.on_device_2BH[0].sum()) > 0


def _empty() -> Tokens:
    return _tokens(0)


def test_a_head_of_zeros_gets_a_scale_that_is_no_zero() -> None:
    """Otherwise 0 / 0 is the first NaN of the session."""
    contents = _contents((0.0, 1.0, 1.0))
    scales = calibrated(contents)
    assert bool((scales.key_BH > 0).all())
    assert bool((scales.value_BH > 0).all())
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=scales)
    cache.load(contents)
    assert float(cache.contents().frames[0].k_BHTD[:, 0].abs().max()) == 0.0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize(("kind", "name"), [("k_BHTD", "keys"), ("v_BHTD", "values")])
def test_what_is_no_finite_number_sets_no_scale(bad: float, kind: str, name: str) -> None:
    contents = _contents()
    getattr(contents.frames[1], kind)[1, 2, 0, 0] = bad
    with pytest.raises(CalibrationError, match=f"{name} of block 1, head 2 reach {bad}"):
        calibrated(contents)


def test_nothing_sets_no_scale() -> None:
    contents = Contents(prefix=_empty(), frames=(), num_frames=0, base=0)
    with pytest.raises(CalibrationError, match="the cache is empty"):
        calibrated(contents)


@pytest.mark.parametrize("headroom", [0.0, 0.99, 257.0, float("nan"), -1.0])
def test_a_headroom_out_of_bounds_is_refused(headroom: float) -> None:
    with pytest.raises(ConfigError, match=r"headroom is .*; allowed: 1 to 256"):
        calibrated(_contents(), headroom=headroom)


class CastOfOldTorch(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own
    """Casts to e4m3 as torch 2.11 does on the host: beyond 464 a NaN, where 2.13 saturates."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        kwargs = kwargs or {}
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") == fp8.E4M3:
            wide = args[0]
            args = (torch.where(wide.abs() > 464, float("nan"), wide),)
        return func(*args, **kwargs)


def test_a_cast_without_a_clamp_would_be_noticed() -> None:
    """The negative control: what the old library makes of numbers beyond its range."""
    beyond = torch.tensor([448.0, 464.0, 465.0, -1e6])
    with CastOfOldTorch():  # type: ignore[no-untyped-call] # torch's own
        assert beyond.to(fp8.E4M3).float().isnan().tolist() == [False, False, True, True]
        units, num_clamped = fp8.rounded(beyond[None, None], torch.ones(1))
    assert units.float().flatten().tolist() == [448.0, 448.0, 448.0, -448.0]
    assert num_clamped.tolist() == [3]


def test_no_cast_of_a_session_relies_on_the_library() -> None:
    """Content grows far past its scales, through every write and every reset."""
    calm = _contents()
    scales = calibrated(calm, headroom=1.0)
    tight = CacheScales(key_BH=scales.key_BH / 50, value_BH=scales.value_BH / 50)
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=tight)
    with CastOfOldTorch():  # type: ignore[no-untyped-call] # torch's own
        session = Session(ODD_MODEL, cache, prefix_length=5).run(steps_of(ODD_MODEL))
        cache.turn_prefix(3)
    assert session.worst < float("inf")
    assert not bool(cache.contents().frames[0].k_BHTD.isnan().any())
    assert bool((cache.clamps.on_device_2BH > 0).all())


def test_counts_of_clamped_numbers_are_those_of_the_head_that_grew() -> None:
    calm = _contents()
    cache = WriteTimeCache(ODD_MODEL, num_heads=NUM_HEADS, scales=calibrated(calm, headroom=1.0))
    grown = _contents((1.0, 3.0, 1.0))
    cache.load(grown)
    limit = calibrated(calm, headroom=1.0).value_BH * fp8.LARGEST
    expected = sum(
        (part.v_BHTD.abs() > limit[..., None, None]).sum(dim=(-2, -1))
        for part in (grown.prefix, *grown.frames)
    )
    counted = cache.clamps.on_device_2BH[1]
    assert isinstance(expected, Tensor)
    # The prefix comes through bfloat16, which may move a number over the edge.
    assert int((counted - expected).abs().max()) <= 1
    assert int(counted[:, 1].sum()) > int(counted[:, [0, 2]].sum())


def test_counts_are_read_late_and_as_they_were() -> None:
    """A step that waits for its own counts is a host synchronisation."""
    counts = ClampCounts(num_blocks=2, num_heads=3, device=torch.device("cpu"))
    seen = []
    for _ in range(4):
        counts.on_device_2BH.add_(1)
        counts.publish()
        late = counts.late()
        seen.append(None if late is None else int(late[0, 0, 0]))
    assert seen == [None, 1, 2, 3]
