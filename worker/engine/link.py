"""The supervisor's end of a channel: never blocks, calls back from the event loop. No torch."""

import asyncio
import socket
from collections.abc import Callable

from worker.parallel.channel import PACKET_BYTES, Assembly, Message, PeerLostError, packets

# What one readiness of the socket may take before other sockets have their turn.
_PACKETS_A_TURN = 32


class Link:
    """Messages to and from one process of the group."""

    def __init__(
        self,
        end: socket.socket,
        *,
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
    ) -> None:
        """Read `end` on the running loop until the peer has gone or `close`."""
        self._end = end
        self._on_message, self._on_lost = on_message, on_lost
        self._assembly = Assembly()
        end.setblocking(False)  # noqa: FBT003 - the standard library's signature
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(end.fileno(), self._read)

    def send(self, message: Message) -> None:
        """Send a short message at once.

        Raises: PeerLostError if the peer has gone or has not read for a few hundred messages.
        """
        try:
            for packet in packets(message):
                self._end.send(packet)
        except OSError as error:
            message_text = f"a process of the group does not take messages: {error}"
            raise PeerLostError(message_text) from error

    def close(self) -> None:
        """Stop reading and close."""
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end.fileno())
            self._end.close()

    def _read(self) -> None:
        for _ in range(_PACKETS_A_TURN):
            try:
                packet = self._end.recv(PACKET_BYTES + 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                # The peer has gone without reading all of ours. The kernel says so once, before it
                # hands over what the peer wrote; its last words come next.
                continue
            except OSError:
                packet = b""
            if not packet:
                self._loop.remove_reader(self._end.fileno())
                self._on_lost()
                return
            message = self._assembly.add(packet)
            if message is not None:
                self._on_message(message)
            if self._end.fileno() < 0:
                return
