"""What a decoder remembers is the session's, whichever decoder it is and wherever it runs."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from worker import config
from worker.config import TINY_MODEL, ConfigError, ModelConfig
from worker.decode import choice
from worker.decode.decoder import Decoder, DecoderState
from worker.decode.small import SmallDecoder
from worker.decode.stage import LATENT, SEEN, DecodeStage
from worker.decode.streaming import StreamingDecoder
from worker.parallel.channel import Message

NUM_LATENTS = 4
DECODERS = ("small", "streaming")
every_decoder = pytest.mark.parametrize("name", DECODERS)


def _model(name: str) -> ModelConfig:
    return replace(TINY_MODEL, decoder=name)


def _latents(seed: int) -> Tensor:
    cells = TINY_MODEL.grid[0] * TINY_MODEL.grid[1]
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(NUM_LATENTS, cells, TINY_MODEL.latent_channels, generator=generator)


def _streamed(decoder: Decoder, latents_NGC: Tensor) -> Tensor:  # noqa: N803 - a shape suffix
    """A session, one latent at a time."""
    state = decoder.new_state()
    pictures = []
    for latent in torch.split(latents_NGC, 1):
        frames, state = decoder.frames(latent, state)
        pictures.append(frames)
    return torch.cat(pictures)


class _KeepsToItself:
    """The negative control: a decoder whose state is the module's."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._state = decoder.new_state()

    def new_state(self) -> DecoderState:
        return DecoderState(memories_CYX=())

    def frames(self, latents: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        pictures, self._state = self._decoder.frames(latents, self._state)
        return pictures, state


def _belongs_to_the_session(decoder: Decoder, fresh: Iterable[Decoder]) -> bool:
    """Whether two sessions in turn are what two decoders make that never saw another."""
    return all(
        torch.equal(_streamed(decoder, _latents(seed)), _streamed(alone, _latents(seed)))
        for seed, alone in enumerate(fresh)
    )


@every_decoder
def test_two_sessions_in_turn_are_two_fresh_ones(name: str) -> None:
    fresh = [choice.drawn(_model(name)) for _ in range(2)]
    assert _belongs_to_the_session(choice.drawn(_model(name)), fresh)


@every_decoder
def test_a_decoder_that_keeps_its_state_to_itself_would_be_noticed(name: str) -> None:
    """It shows the second viewer the rest of the first one's session."""
    fresh = [choice.drawn(_model(name)) for _ in range(2)]
    keeps = _KeepsToItself(choice.drawn(_model(name)))
    assert not _belongs_to_the_session(keeps, fresh)


@every_decoder
def test_a_chunk_depends_on_the_one_before_it(name: str) -> None:
    """Or it would not matter whose the state is."""
    decoder = choice.drawn(_model(name))
    latents = _latents(1)
    _, state = decoder.frames(latents[:1], decoder.new_state())
    after, _ = decoder.frames(latents[1:2], state)
    alone, _ = decoder.frames(latents[1:2], decoder.new_state())
    assert not torch.equal(after, alone)


@every_decoder
def test_a_state_is_left_as_it_was(name: str) -> None:
    """Twice from the same state is the same twice, so a step can be repeated."""
    decoder = choice.drawn(_model(name))
    latents = _latents(1)
    _, state = decoder.frames(latents[:2], decoder.new_state())
    first, _ = decoder.frames(latents[2:3], state)
    again, _ = decoder.frames(latents[2:3], state)
    assert torch.equal(first, again)


@every_decoder
@pytest.mark.parametrize("num_latents", [0, 1, 3])
def test_a_latent_is_four_pictures_ready_for_the_encoder(name: str, num_latents: int) -> None:
    """The encoder reads the memory as it lies."""
    decoder = choice.drawn(_model(name))
    pictures, _ = decoder.frames(_latents(1)[:num_latents], decoder.new_state())
    assert (pictures.dtype, pictures.shape) == (torch.uint8, (4 * num_latents, 48, 64, 3))
    assert pictures.is_contiguous()


@every_decoder
def test_latents_of_another_shape_are_refused(name: str) -> None:
    decoder = choice.drawn(_model(name))
    with pytest.raises(ConfigError, match=r"latents is \(1, 13, 8\); allowed: \[any number, 12,"):
        decoder.frames(torch.zeros(1, 13, 8), decoder.new_state())


def test_the_model_says_which_decoder() -> None:
    """The demo has no cores for the one of production's shape; see `worker.decode.small`."""
    assert isinstance(choice.drawn(config.DEMO_MODEL), SmallDecoder)
    assert isinstance(choice.drawn(config.TINY_MODEL), StreamingDecoder)


def _latent(latent_GC: Tensor, kind: str, *, session: int) -> Message:  # noqa: N803 - a shape suffix
    blob = bytes(latent_GC.contiguous().view(torch.uint8).flatten().tolist())
    return Message(kind=kind, fields={"session": session}, blobs=(blob,))


def _chunks(stage: DecodeStage, session: int, latents_NGC: Tensor) -> list[Message]:  # noqa: N803 - a shape suffix
    taken = [stage.taken(_latent(each, LATENT, session=session)) for each in latents_NGC]
    return [chunk for chunk in taken if chunk is not None]


@every_decoder
def test_the_next_session_of_a_stage_begins_anew(name: str) -> None:
    """Sessions follow each other in one process; each JPEG is that of a process of its own."""
    worker = replace(config.tiny(), model=_model(name))
    stage = DecodeStage(worker)
    for session in (1, 2):
        latents = _latents(session)
        alone = _chunks(DecodeStage(worker), session, latents)
        found = _chunks(stage, session, latents)
        assert [each.blobs for each in found] == [each.blobs for each in alone]


@every_decoder
def test_what_was_seen_before_is_not_shown_again_and_goes_on(name: str) -> None:
    """A group that takes a session over decodes its last latents for the state alone."""
    worker = replace(config.tiny(), model=_model(name))
    latents = _latents(1)
    whole = _chunks(DecodeStage(worker), 7, latents)
    stage = DecodeStage(worker)
    for latent in latents[:2]:
        assert stage.taken(_latent(latent, SEEN, session=7)) is None
    resumed = _chunks(stage, 7, latents[2:])
    assert [each.blobs for each in resumed] == [each.blobs for each in whole[2:]]


def test_work_with_nothing_beside_it_is_all_exposed() -> None:
    """In rank 0 every millisecond of it lengthens the step."""
    for chunk in _chunks(DecodeStage(config.tiny()), 1, _latents(1)):
        assert chunk.fields["decoder_hidden_ms"] == chunk.fields["encode_hidden_ms"] == 0
        assert chunk.fields["decoder_ms"] > 0
        assert chunk.fields["encode_ms"] > 0
