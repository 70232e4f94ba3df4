"""The loop of the decoder's own process: latents in, chunks out, one behind the ranks.

Rank 0 tells when it begins to denoise and sends the latent when it has it, each with the time.
"""

import select
import time
from collections import deque
from typing import NoReturn

from worker.decode.overlap import Diffusions, Interval
from worker.decode.stage import LATENT, DecodeStage
from worker.parallel.board import Line
from worker.parallel.channel import Channel, Message

BEGUN = "begun"
_BEAT_MS = 200


def begun(at_ns: int) -> Message:
    """What rank 0 says when it begins to denoise."""
    return Message(kind=BEGUN, fields={"at_ns": at_ns})


class DedicatedDecoder:
    """Decodes what rank 0 sends and tells the supervisor."""

    def __init__(
        self, stage: DecodeStage, line: Line, *, latents: Channel, supervisor: Channel
    ) -> None:
        """Take over the channels of the decoder."""
        self._stage, self._line = stage, line
        self._latents, self._supervisor = latents, supervisor
        self._waiting: deque[Message] = deque()  # as many as chunks may be ahead, at most
        self._diffusions = Diffusions()
        self._poll = select.poll()
        for channel in (latents, supervisor):
            self._poll.register(channel.fileno(), select.POLLIN)

    def serve(self) -> NoReturn:
        """Decode for ever. Raises: PeerLostError when rank 0 or the supervisor has gone."""
        while True:
            self._line.beat()
            self._hear(wait_ms=0 if self._waiting else _BEAT_MS)
            if self._waiting:
                self._decode(self._waiting.popleft())

    def _decode(self, latent: Message) -> None:
        begun_ns = time.monotonic_ns()
        self._diffusions.forget_before(begun_ns)
        chunk = self._stage.taken(latent, beside=self._beside)
        if chunk is not None:
            self._supervisor.send(chunk)

    def _beside(self, now_ns: int) -> tuple[Interval, ...]:
        """The diffusions until now; what rank 0 has said meanwhile is heard first."""
        self._hear(wait_ms=0)
        return self._diffusions.until(now_ns)

    def _hear(self, *, wait_ms: int) -> None:
        """Take in all that has been said."""
        while ready := {fileno for fileno, _ in self._poll.poll(wait_ms)}:
            if self._supervisor.fileno() in ready:
                self._supervisor.receive()  # nothing is ever asked: this is its end of file
            if self._latents.fileno() in ready:
                self._take(self._latents.receive())
            wait_ms = 0

    def _take(self, message: Message) -> None:
        if message.kind == BEGUN:
            self._diffusions.begin(message.fields["at_ns"])
            return
        if message.kind == LATENT:
            self._diffusions.end(message.fields["ended_ns"])
        self._waiting.append(message)
