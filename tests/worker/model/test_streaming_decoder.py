"""The decoder of production's shape: state of the session, causal, the same however batched."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from worker.config import TINY_MODEL, ConfigError
from worker.decode.decoder import DecoderState
from worker.decode.streaming import StreamingDecoder
from worker.shapes import FULL_MODEL

MODEL = replace(TINY_MODEL, pixels_per_token=32)
NUM_LATENTS = 6
_BOUND = 1e-5  # float32: a convolution over another batch may add in another order


def _latents(seed: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    cells = MODEL.grid[0] * MODEL.grid[1]
    return torch.randn(NUM_LATENTS, cells, MODEL.latent_channels, generator=generator)


@pytest.fixture
def decoder() -> StreamingDecoder:
    return StreamingDecoder(MODEL)


def _streamed(
    decoder: StreamingDecoder, latents: Tensor, sizes: list[int]
) -> tuple[Tensor, DecoderState]:
    """All colours of `latents`, given in batches of `sizes`."""
    state = decoder.new_state()
    out = []
    for batch in torch.split(latents, sizes):
        colours, state = decoder.colours(batch, state)
        out.append(colours)
    return torch.cat(out), state


def _differ(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


@pytest.mark.parametrize("sizes", [[1] * 6, [2, 4], [5, 1], [3, 0, 3], [1, 2, 3]], ids=str)
def test_pictures_do_not_depend_on_how_latents_are_batched(
    decoder: StreamingDecoder, sizes: list[int]
) -> None:
    """A chunk at a time or a whole minute: nothing restarts, no frame is lost."""
    whole, last = _streamed(decoder, _latents(), [NUM_LATENTS])
    parts, state = _streamed(decoder, _latents(), sizes)
    assert parts.shape == whole.shape == (4 * NUM_LATENTS, 3, 96, 128)
    assert _differ(parts, whole) < _BOUND
    pairs = zip(state.memories_CYX, last.memories_CYX, strict=True)
    assert all(_differ(one, other) < 1e-4 for one, other in pairs)


def test_a_decoder_that_starts_anew_at_every_chunk_would_be_noticed(
    decoder: StreamingDecoder,
) -> None:
    """The fault of an open project, and the negative control of the test above."""
    whole, _ = _streamed(decoder, _latents(), [NUM_LATENTS])
    anew = [decoder.colours(each, decoder.new_state())[0] for each in torch.split(_latents(), 1)]
    assert _differ(torch.cat(anew)[:4], whole[:4]) < _BOUND
    assert _differ(torch.cat(anew)[4:], whole[4:]) > 1000 * _BOUND


@pytest.mark.parametrize("changed", range(NUM_LATENTS))
def test_no_picture_depends_on_a_later_latent(decoder: StreamingDecoder, changed: int) -> None:
    """And each of the four of a chunk on its own."""
    other = _latents()
    other[changed] += 1
    before, _ = _streamed(decoder, _latents(), [NUM_LATENTS])
    after, _ = _streamed(decoder, other, [NUM_LATENTS])
    assert torch.equal(before[: 4 * changed], after[: 4 * changed])
    for frame in range(4 * changed, 4 * changed + 4):
        assert _differ(before[frame], after[frame]) > 1000 * _BOUND


def test_sessions_that_take_turns_do_not_see_each_other(decoder: StreamingDecoder) -> None:
    """The state is the session's: one decoder serves the next viewer without a trace."""
    states = {seed: decoder.new_state() for seed in (1, 2)}
    pictures: dict[int, list[Tensor]] = {1: [], 2: []}
    for step in range(NUM_LATENTS):
        for seed in (1, 2):
            latent = _latents(seed)[step : step + 1]
            colours, states[seed] = decoder.colours(latent, states[seed])
            pictures[seed].append(colours)
    for seed in (1, 2):
        alone, _ = _streamed(decoder, _latents(seed), [1] * NUM_LATENTS)
        assert torch.equal(torch.cat(pictures[seed]), alone)


def test_a_state_can_be_gone_back_to(decoder: StreamingDecoder) -> None:
    """Decoding leaves the state that it was given as it was: a chunk can be made again."""
    _, state = decoder.colours(_latents()[:2], decoder.new_state())
    first, _ = decoder.frames(_latents()[2:3], state)
    again, _ = decoder.frames(_latents()[2:3], state)
    assert torch.equal(first, again)


def test_a_state_keeps_nothing_but_its_own_frames(decoder: StreamingDecoder) -> None:
    """A view of the last frame would keep a whole minute of activations in memory."""
    _, state = decoder.colours(_latents(), decoder.new_state())
    for memory in state.memories_CYX:
        assert memory.untyped_storage().nbytes() == memory.nbytes


def test_frames_are_bytes_in_the_layout_of_a_picture(decoder: StreamingDecoder) -> None:
    """As the JPEG stage takes them; and not one flat colour."""
    frames, _ = decoder.frames(_latents()[:1], decoder.new_state())
    assert frames.shape == (4, 96, 128, 3)
    assert frames.dtype is torch.uint8
    assert frames.is_contiguous()
    assert frames.float().std().item() > 10


@pytest.mark.parametrize("shape", [(1, 11, 8), (1, 12, 7), (12, 8)], ids=str)
def test_latents_of_another_shape_are_refused(
    decoder: StreamingDecoder, shape: tuple[int, ...]
) -> None:
    """Twelve cells of eight channels."""
    with pytest.raises(ConfigError) as refused:
        decoder.frames(torch.zeros(shape), decoder.new_state())
    assert str(refused.value) == f"latents is {shape!r}; allowed: [any number, 12, 8]"


def test_one_latent_of_production_is_four_frames_of_704_by_1088() -> None:
    """22 x 34 cells; on the meta device, which computes shapes and nothing else."""
    with torch.device("meta"), torch.inference_mode():
        decoder = StreamingDecoder(FULL_MODEL)
        latent = torch.empty(1, 22 * 34, FULL_MODEL.latent_channels)
        before = decoder.new_state()
        frames, after = decoder.frames(latent, before)
    assert frames.shape == (4, 704, 1088, 3)
    assert [m.shape for m in after.memories_CYX] == [m.shape for m in before.memories_CYX]
