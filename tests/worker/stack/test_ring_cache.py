"""The ring cache against a plain cache that keeps every frame in order."""

from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor

from worker.cache.ring import RingCursor, advanced
from worker.cache.store import RingCache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.ops import rope
from worker.ops.attention import attend

_BOUND = 2e-5  # float32, another order of the keys
_NUM_HEADS = 3


@dataclass(slots=True)
class Oracle:
    """Raw keys and values of every frame, rotated when they are read."""

    model: ModelConfig
    prefix: tuple[Tensor, Tensor]
    frames: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def attended(self, query: Tensor, *, base: int) -> Tensor:
        newest = len(self.frames) - 1
        kept = range(max(0, newest + 1 - self.model.window), newest + 1)
        split = self.model.rope_split
        keys = [
            rope.rotated(self.prefix[0], rope.prefix_turn(self.prefix[0].shape[1], split=split))
        ]
        keys += [self._turned(self.frames[n][0], n - base) for n in kept]
        values = [self.prefix[1], *(self.frames[n][1] for n in kept)]
        return attend(self._turned(query, newest - base), torch.cat(keys, 1), torch.cat(values, 1))

    def _turned(self, x: Tensor, position: int) -> Tensor:
        return rope.rotated(x, _turn(self.model, position))


def _turn(model: ModelConfig, position: int) -> rope.Turn:
    return rope.frame_turn(
        position, grid=model.grid, num_extra=model.num_extra_tokens, split=model.rope_split
    )


def _largest_error(
    model: ModelConfig, *, prefix_length: int, forgets_to_turn: bool = False
) -> float:
    generator = torch.Generator().manual_seed(5)

    def noise(tokens: int) -> Tensor:
        return torch.randn((_NUM_HEADS, tokens, model.head_width), generator=generator)

    oracle = Oracle(model, (noise(prefix_length), noise(prefix_length)))
    cache = RingCache(model, num_heads=_NUM_HEADS)
    cache.open_prefix(prefix_length)
    turn = rope.prefix_turn(prefix_length, split=model.rope_split)
    cache.write_prefix(0, rope.rotated(oracle.prefix[0], turn), oracle.prefix[1])
    cursor = RingCursor(window=model.window, reset_period=model.reset_period)
    base, worst = 0, 0.0
    for _ in range(2 * model.reset_period + model.window + 3):
        if cursor.shift and not forgets_to_turn:
            cache.shift_window(cursor.shift)
        base += cursor.shift
        cache.open_frame(cursor.slot)
        # Two passes write the same slots: only the last may be seen by the next step.
        for _ in range(2):
            key, value, query = (noise(model.tokens_per_frame) for _ in range(3))
            here = _turn(model, cursor.position)
            cache.write_frame(0, cursor.slot, rope.rotated(key, here), value)
        oracle.frames.append((key, value))
        out = attend(rope.rotated(query, here), *cache.read(0))
        worst = max(worst, (out - oracle.attended(query, base=base)).abs().max().item())
        cursor = advanced(cursor)
    return worst


@pytest.mark.parametrize("model", [TINY_MODEL, TINY_EDGE_MODEL], ids=["tiny", "tiny-edge"])
@pytest.mark.parametrize("prefix_length", [1, 5, 48])
def test_attention_over_the_ring_equals_attention_over_an_ordered_cache(
    model: ModelConfig, prefix_length: int
) -> None:
    """Through fill, wraps and at least two resets: a slot index carries no meaning."""
    assert _largest_error(model, prefix_length=prefix_length) < _BOUND


def test_the_comparison_notices_a_reset_that_leaves_the_old_angles() -> None:
    """The fault of an open project: the counter is set back and the keys are not turned."""
    assert _largest_error(TINY_EDGE_MODEL, prefix_length=5, forgets_to_turn=True) > 100 * _BOUND


def test_positions_stay_within_the_table_for_a_session_of_hours() -> None:
    """Three hours at six steps a second; the table has `reset_period + window` rows."""
    cursor = RingCursor(window=4, reset_period=10)
    highest = 0
    for _ in range(3 * 3600 * 6):
        highest = max(highest, cursor.position)
        cursor = advanced(cursor)
    assert highest == 10 + 4 - 1


def test_a_reset_keeps_every_byte_but_the_time_channels_of_window_keys() -> None:
    """Prefix keys, values and the row and column channels must not be rounded again."""
    model = TINY_MODEL
    cache = RingCache(model, num_heads=_NUM_HEADS)
    cache.open_prefix(5)
    prefix = torch.randn(_NUM_HEADS, 5, model.head_width)
    frame = torch.randn(_NUM_HEADS, model.tokens_per_frame, model.head_width)
    cache.write_prefix(0, prefix, prefix)
    cache.open_frame(0)
    cache.write_frame(0, 0, frame, frame)
    cache.shift_window(10)
    keys, values = cache.read(0)
    time_channels = model.rope_split[0]
    assert torch.equal(keys[:, :5], prefix)
    assert torch.equal(values[:, 5:], frame)
    assert torch.equal(keys[:, 5:, time_channels:], frame[..., time_channels:])
    assert not torch.equal(keys[:, 5:, :time_channels], frame[..., :time_channels])
