"""Where rank 0 hands its latents on: the flag `decoder`, fixed for the life of a group.

`dedicated`: to the decoder's process, which works while the ranks go on. `shared`: decoded here and
now, so that every step takes so much longer; there is no other process that could die.
"""

from collections.abc import Sequence
from typing import Protocol

from worker.decode import dedicated
from worker.decode.stage import DecodeStage
from worker.parallel.board import Line
from worker.parallel.channel import Channel, Message


class Outlet(Protocol):
    """Takes the latents of rank 0 in order."""

    @property
    def channels(self) -> Sequence[Channel]:
        """What must be watched: anything to be read from them is their end of file."""
        ...

    def begin(self, at_ns: int) -> None:
        """Rank 0 begins to denoise. Raises: PeerLostError."""
        ...

    def hand_on(self, latent: Message) -> None:
        """Take a latent, of `stage.LATENT` or `stage.SEEN`. Raises: PeerLostError."""
        ...


class Dedicated:
    """The decoder's process."""

    def __init__(self, decoder: Channel) -> None:
        """Take over the channel to it."""
        self.channels = (decoder,)
        self._decoder = decoder

    def begin(self, at_ns: int) -> None:
        """See `Outlet.begin`."""
        self._decoder.send(dedicated.begun(at_ns))

    def hand_on(self, latent: Message) -> None:
        """See `Outlet.hand_on`."""
        self._decoder.send(latent)


class Shared:
    """This process."""

    def __init__(self, stage: DecodeStage, line: Line, *, supervisor: Channel) -> None:
        """Decode with `stage` and tell `supervisor`."""
        self.channels: tuple[Channel, ...] = ()
        self._stage, self._line, self._supervisor = stage, line, supervisor

    def begin(self, at_ns: int) -> None:
        """See `Outlet.begin`; nothing runs beside it here."""

    def hand_on(self, latent: Message) -> None:
        """See `Outlet.hand_on`."""
        self._line.beat()
        chunk = self._stage.taken(latent)
        if chunk is not None:
            self._supervisor.send(chunk)
