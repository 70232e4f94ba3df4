"""From one latent to the message with its JPEG frames, the same in whichever process it runs.

Holds the session's state: a new session begins with a new one.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.decode.decoder`

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.config import WorkerConfig
from worker.decode import choice, jpeg
from worker.decode.decoder import DecoderState
from worker.decode.overlap import Interval, overlap
from worker.parallel.channel import Message

LATENT = "latent"  # to be shown
SEEN = "seen"  # one whose pictures the viewer has had from a group that has died


@dataclass(slots=True, kw_only=True)
class _Session:
    number: int
    state: DecoderState


def _nothing_beside(now_ns: int) -> Iterable[Interval]:
    del now_ns
    return ()


class DecodeStage:
    """Decoder, JPEG and the state of the running session."""

    def __init__(self, config: WorkerConfig) -> None:
        """Draw the weights and decode one latent, so that the first viewer does not wait for it."""
        self._config = config
        self._decoder = choice.drawn(config.model)
        self._session = _Session(number=0, state=self._decoder.new_state())
        rows, columns = config.model.grid
        self._latents_shape = (1, rows * columns, config.model.latent_channels)
        pictures, _ = self._decoder.frames(
            torch.ones(self._latents_shape), self._decoder.new_state()
        )
        jpeg.encoded(pictures, quality=config.jpeg_quality)

    def taken(
        self,
        latent: Message,
        *,
        beside: Callable[[int], Iterable[Interval]] = _nothing_beside,
    ) -> Message | None:
        """The frames of one latent with the times of its step; nothing for one that was seen.

        `beside` tells which diffusions ran until a time, and is asked once the work is done.
        """
        begun_ns = time.monotonic_ns()
        pictures = self._pictures(latent)
        if latent.kind == SEEN:
            return None
        decoded_ns = time.monotonic_ns()
        blobs = jpeg.encoded(pictures, quality=self._config.jpeg_quality)
        encoded_ns = time.monotonic_ns()
        diffusions = tuple(beside(encoded_ns))
        decoding = overlap(Interval(begun_ns, decoded_ns), diffusions)
        encoding = overlap(Interval(decoded_ns, encoded_ns), diffusions)
        fields = {
            **latent.fields,
            "decoder_ms": decoding.exposed_ms,
            "decoder_hidden_ms": decoding.hidden_ms,
            "encode_ms": encoding.exposed_ms,
            "encode_hidden_ms": encoding.hidden_ms,
        }
        return Message(kind="chunk", fields=fields, blobs=blobs)

    def _pictures(self, latent: Message) -> Tensor:
        """Moves the session's state on."""
        session = self._session_of(latent.fields["session"])
        latents_NGC = torch.frombuffer(bytearray(latent.blobs[0]), dtype=torch.float32)
        pictures, session.state = self._decoder.frames(
            latents_NGC.view(self._latents_shape), session.state
        )
        return pictures

    def _session_of(self, number: int) -> _Session:
        if self._session.number != number:
            self._session = _Session(number=number, state=self._decoder.new_state())
        return self._session
