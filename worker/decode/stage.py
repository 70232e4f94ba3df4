"""The loop of the decoder process: latents in, JPEG frames out, one chunk behind the ranks."""

# ruff: noqa: N806 - shape suffixes in names; the legend is below

import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from worker.config import WorkerConfig
from worker.decode import jpeg
from worker.decode.decoder import Decoder, DecoderState
from worker.parallel.board import Line
from worker.parallel.channel import Channel, Message

_BEAT_MS = 200


@dataclass(slots=True, kw_only=True)
class _Session:
    number: int
    state: DecoderState


class DecodeStage:
    """Decodes what rank 0 sends and tells the supervisor."""

    def __init__(self, config: WorkerConfig, line: Line) -> None:
        """Draw the weights and decode one latent, so that the first viewer does not wait for it."""
        self._config, self._line = config, line
        self._decoder = Decoder(config.model)
        self._session = _Session(number=0, state=DecoderState())
        rows, columns = config.model.grid
        self._latent_shape = (rows * columns, config.model.latent_channels)
        jpeg.encoded(
            self._decoder.frames(torch.ones(self._latent_shape), DecoderState()),
            quality=config.jpeg_quality,
        )

    def serve(self, *, latents: Channel, supervisor: Channel) -> NoReturn:
        """Decode for ever. Raises: PeerLostError when rank 0 or the supervisor has gone."""
        poll = select.poll()
        poll.register(latents.fileno(), select.POLLIN)
        poll.register(supervisor.fileno(), select.POLLIN)
        while True:
            self._line.beat()
            ready = {fileno for fileno, _ in poll.poll(_BEAT_MS)}
            if supervisor.fileno() in ready:
                supervisor.receive()  # nothing is ever asked: this is its end of file
            if latents.fileno() in ready:
                latent = latents.receive()
                if latent.fields["is_seen"]:
                    self.see(latent)
                else:
                    supervisor.send(self.chunk(latent))

    def see(self, latent: Message) -> None:
        """Move the session's state on by a latent whose pictures the viewer has had."""
        self._pictures(latent)

    def chunk(self, latent: Message) -> Message:
        """The frames of one latent, with the times of its step."""
        begun_s = time.perf_counter()
        frames = self._pictures(latent)
        decoded_s = time.perf_counter()
        blobs = jpeg.encoded(frames, quality=self._config.jpeg_quality)
        decoder_ms = (decoded_s - begun_s) * 1e3
        encode_ms = (time.perf_counter() - decoded_s) * 1e3
        fields = exposed(latent.fields, decoder_ms=decoder_ms, encode_ms=encode_ms)
        return Message(kind="chunk", fields=fields, blobs=blobs)

    def _pictures(self, latent: Message) -> Tensor:
        state = self._state(latent.fields["session"])
        latent_GC = torch.frombuffer(bytearray(latent.blobs[0]), dtype=torch.float32)
        return self._decoder.frames(latent_GC.view(self._latent_shape), state)

    def _state(self, session: int) -> DecoderState:
        if self._session.number != session:
            self._session = _Session(number=session, state=DecoderState())
        return self._session.state


def exposed(fields: Mapping[str, Any], *, decoder_ms: float, encode_ms: float) -> dict[str, Any]:
    """The times of a step, with only that part of decoding that the next step does not hide.

    Chunk n - 1 is decoded while chunk n is denoised, so only what decoding takes beyond the
    diffusion lengthens a step; nothing hides the first chunk of a session.
    """
    busy_ms = decoder_ms + encode_ms
    shown_ms = busy_ms if fields["step"] == 0 else max(0.0, busy_ms - fields["diffusion_ms"])
    share = shown_ms / busy_ms if busy_ms > 0 else 0.0
    return {**fields, "decoder_ms": decoder_ms * share, "encode_ms": encode_ms * share}
