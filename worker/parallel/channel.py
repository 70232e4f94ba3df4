"""Framed messages between two processes over a socket pair that keeps packet borders.

A message is a kind, JSON fields and raw blobs. End of file means that the peer has died. No torch.
"""

import json
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

# A packet has to fit the send buffer whole (212,992 bytes by default, with overhead); a chunk of
# JPEGs does not, so a message travels as packets of this size, all but the last marked `MORE`.
PACKET_BYTES = 48 * 1024
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
_LAST, _MORE = b"\0", b"\1"
_LENGTH = struct.Struct("<I")


class PeerLostError(Exception):
    """The other process has died or does not answer; never the first cause of a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One thing said to another process of the group."""

    kind: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    blobs: tuple[bytes, ...] = ()


def pair() -> tuple[socket.socket, socket.socket]:
    """Two connected ends."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def packets(message: Message) -> list[bytes]:
    """The packets that carry `message`, in order."""
    head = {
        "kind": message.kind,
        "fields": message.fields,
        "sizes": [len(b) for b in message.blobs],
    }
    header = json.dumps(head).encode()
    payload = b"".join((_LENGTH.pack(len(header)), header, *message.blobs))
    parts = [payload[at : at + PACKET_BYTES] for at in range(0, len(payload), PACKET_BYTES)]
    return [_MORE + part for part in parts[:-1]] + [_LAST + parts[-1]]


class Assembly:
    """Puts packets together again; keeps at most one unfinished message."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._num_bytes = 0

    def add(self, packet: bytes) -> Message | None:
        """The message that `packet` completes, if it does. Raises: ValueError above the limit."""
        self._parts.append(packet[1:])
        self._num_bytes += len(packet) - 1
        if self._num_bytes > MAX_MESSAGE_BYTES:
            message = f"a message of more than {MAX_MESSAGE_BYTES} bytes"
            raise ValueError(message)
        if packet[:1] == _MORE:
            return None
        payload = b"".join(self._parts)
        self._parts.clear()
        self._num_bytes = 0
        return _parsed(payload)


def _parsed(payload: bytes) -> Message:
    (length,) = _LENGTH.unpack_from(payload)
    at = _LENGTH.size + length
    head = json.loads(payload[_LENGTH.size : at])
    return Message(
        kind=head["kind"], fields=head["fields"], blobs=_split(payload, at, head["sizes"])
    )


def _split(payload: bytes, at: int, sizes: Sequence[int]) -> tuple[bytes, ...]:
    blobs = []
    for size in sizes:
        blobs.append(payload[at : at + size])
        at += size
    return tuple(blobs)


class Channel:
    """The blocking end of a process of the group. Not for the supervisor, which must not block."""

    def __init__(self, end: socket.socket, *, peer: str) -> None:
        """Take over `end`; `peer` is how errors name the other side."""
        self._end = end
        self._peer = peer
        self._assembly = Assembly()
        end.setblocking(True)  # noqa: FBT003 - the standard library's signature

    def fileno(self) -> int:
        """For `select`."""
        return self._end.fileno()

    def send(self, message: Message) -> None:
        """Send all of `message`. Raises: PeerLostError."""
        for packet in packets(message):
            self.send_packet(packet)

    def send_packet(self, packet: bytes) -> None:
        """Send one packet as it is. Raises: PeerLostError."""
        try:
            self._end.send(packet)
        except OSError as error:
            message = f"{self._peer} does not take messages: {error}"
            raise PeerLostError(message) from error

    def receive(self) -> Message:
        """Wait for the next message. Raises: PeerLostError at end of file."""
        while True:
            message = self._assembly.add(self.receive_packet())
            if message is not None:
                return message

    def receive_packet(self) -> bytes:
        """Wait for the next packet. Raises: PeerLostError at end of file."""
        try:
            packet = self._received()
        except OSError as error:
            message = f"{self._peer} cannot be read: {error}"
            raise PeerLostError(message) from error
        if not packet:
            message = f"{self._peer} has closed its end"
            raise PeerLostError(message)
        return packet

    def _received(self) -> bytes:
        try:
            return self._end.recv(PACKET_BYTES + 1)
        except ConnectionResetError:
            # The peer has gone without reading all of ours. The kernel says so once, before it
            # hands over what the peer wrote.
            return self._end.recv(PACKET_BYTES + 1)
