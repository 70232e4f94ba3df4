"""The first forward of a prompt, and another prompt in mid-session."""

from collections.abc import Iterator

import pytest
import torch

from worker.cache import prompt
from worker.cache.contents import Tokens
from worker.cache.ring import RingCursor, advanced
from worker.cache.write_time import WriteTimeCache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ConfigError, ModelConfig
from worker.ops.pre_attention import Heads
from worker.shapes import FULL_MODEL

MODELS = [FULL_MODEL, TINY_MODEL, TINY_EDGE_MODEL]
every_model = pytest.mark.parametrize("model", MODELS, ids=["full", "tiny", "tiny-edge"])


def _start(model: ModelConfig) -> RingCursor:
    return RingCursor(window=model.window, reset_period=model.reset_period)


def _cursors(model: ModelConfig) -> Iterator[RingCursor]:
    """Through fill, wraps and two resets: for `full` steps 41, 42, 43 and all around them."""
    cursor = _start(model)
    for _ in range(2 * model.reset_period + 2 * model.window):
        yield cursor
        cursor = advanced(cursor)


@every_model
def test_a_prefix_of_any_length_ends_where_the_ring_begins(model: ModelConfig) -> None:
    """So that the valid slots are one slice, whatever the length."""
    low, high = model.first_forward_bounds
    for length in range(low, high + 1):
        first = prompt.first_forward(model, length=length)
        assert first.end_slot - first.first_slot == first.num_tokens == length
        assert first.end_slot == high
        assert 0 <= first.num_rows - length < 128


def test_489_prompt_lengths_bring_five_shapes() -> None:
    """The lesson of August: what is kept for each shape is bounded by the model, not by the day."""
    assert prompt.num_shapes(FULL_MODEL) == 5


@every_model
@pytest.mark.parametrize("beyond", [-1, 1], ids=["below", "above"])
def test_a_length_out_of_bounds_is_refused_by_name(model: ModelConfig, beyond: int) -> None:
    """Before anything is written: a longer prefix would run into the ring."""
    low, high = model.first_forward_bounds
    length = low - 1 if beyond < 0 else high + 1
    with pytest.raises(ConfigError, match=f"prompt_length is {length}; allowed: {low} to {high}"):
        prompt.first_forward(model, length=length)
    with pytest.raises(ConfigError, match="prompt_length"):
        prompt.changed(model, _start(model), length=length)


def test_the_longest_prompt_of_full_takes_less_than_a_pass() -> None:
    """489 of 757 tokens over a short sequence: 2 x 56.6e9 x 489 and 0.44 TFLOP of attention."""
    first = prompt.first_forward(FULL_MODEL, length=489)
    assert first.flops / 1e12 == pytest.approx(55.38 + 0.44, abs=0.01)


@every_model
def test_after_a_change_the_newest_frames_are_computed_again_in_order(model: ModelConfig) -> None:
    """Each sees the new prompt and those before it, as many as the next frame will leave."""
    for cursor in _cursors(model):
        change = prompt.changed(model, cursor, length=model.first_forward_bounds[0])
        frames = [replay.frame for replay in change.replays]
        num_kept = min(cursor.num_frames, model.window - 1)
        assert frames == list(range(cursor.num_frames - num_kept, cursor.num_frames))
        places = [(replay.slot, replay.position) for replay in change.replays]
        assert places == [(number, number) for number in range(num_kept)]


@every_model
def test_the_next_frame_takes_a_free_slot_right_after_the_replayed(model: ModelConfig) -> None:
    """One behind or one ahead would overwrite a frame or leave a hole in the window."""
    for cursor in _cursors(model):
        change = prompt.changed(model, cursor, length=model.first_forward_bounds[1])
        assert change.cursor.slot not in {replay.slot for replay in change.replays}
        assert change.cursor.position == len(change.replays)
        assert change.cursor.num_kept == len(change.replays) + 1


@every_model
def test_a_reset_that_was_due_is_not_applied_after_a_change(model: ModelConfig) -> None:
    """Replayed keys stand at their new positions already; a shift would turn them twice."""
    due = [cursor for cursor in _cursors(model) if cursor.shift]
    assert due, "no cursor is due for a reset"
    for cursor in due:
        assert prompt.changed(model, cursor, length=1).cursor.shift == 0


@every_model
def test_positions_stay_within_the_table_however_often_the_prompt_changes(
    model: ModelConfig,
) -> None:
    """A change every few steps, for several periods of the reset."""
    for every in range(1, model.reset_period + model.window + 2):
        cursor = _start(model)
        for step in range(3 * model.reset_period):
            if step % every == every - 1:
                cursor = prompt.changed(model, cursor, length=1).cursor
            assert 0 <= cursor.position < model.reset_period + model.window
            cursor = advanced(cursor)


@pytest.mark.parametrize("model", [TINY_MODEL, TINY_EDGE_MODEL], ids=["tiny", "tiny-edge"])
def test_a_cache_carried_through_a_change_holds_nothing_unwritten(model: ModelConfig) -> None:
    """The fault of an open project: prefix keys are zeroed at a change and stay zero for ever."""
    for cursor in _cursors(model):
        length = 1 + cursor.num_frames % model.first_forward_bounds[1]
        change = prompt.changed(model, cursor, length=length)
        cache = WriteTimeCache(model, num_heads=1, dtype=torch.float32)
        shape = (model.num_blocks, 1, length, model.head_width)
        prefix = torch.full(shape, -1.0)
        cache.write_prefix(Tokens(k_BHTD=prefix, v_BHTD=prefix))
        at = _start(model)
        for replay in change.replays:
            assert (replay.slot, replay.position) == (at.slot, at.position)
            cache.open_frame(at)
            frame = torch.full((1, model.tokens_per_frame, model.head_width), replay.frame + 1.0)
            for block in range(model.num_blocks):
                cache.prepare(block, Heads(q_HTD=frame, k_HTD=frame, v_HTD=frame))
            _, values = cache.read(0)
            seen = values[0, length :: model.tokens_per_frame, 0].tolist()
            oldest = change.replays[0].frame
            assert seen == [number + 1.0 for number in range(oldest, replay.frame + 1)]
            at = advanced(at)
        assert (at.num_frames, at.position) == (change.cursor.num_frames, change.cursor.position)
        keys, values = cache.read(0)
        assert keys.shape[1] == length + len(change.replays) * model.tokens_per_frame
        assert bool((values[:, :length] == -1).all())
        assert bool((keys != 0).all())
