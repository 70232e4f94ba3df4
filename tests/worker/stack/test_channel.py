"""Messages between processes."""

import asyncio
import socket
import threading

import pytest

from worker.engine.link import Link
from worker.parallel import channel
from worker.parallel.channel import Channel, Message, PeerLostError


def test_a_message_larger_than_a_packet_arrives_whole() -> None:
    """A chunk of four JPEGs does not fit one packet of the socket."""
    ours, theirs = channel.pair()
    with ours, theirs:
        sent = Message(kind="chunk", fields={"step": 3}, blobs=(b"a" * 300_000, b"", b"b" * 5))
        sender = threading.Thread(target=lambda: Channel(ours, peer="b").send(sent))
        sender.start()
        assert Channel(theirs, peer="a").receive() == sent
        sender.join()


def test_the_end_of_a_peer_is_noticed_by_reader_and_writer() -> None:
    """End of file is how a death is told."""
    ours, theirs = channel.pair()
    theirs.close()
    with ours:
        end = Channel(ours, peer="rank 1")
        with pytest.raises(PeerLostError, match="rank 1 has closed"):
            end.receive()
        with pytest.raises(PeerLostError, match="rank 1 does not take"):
            end.send(Message(kind="x"))


def test_a_message_without_an_end_is_refused() -> None:
    """A limit on what one message may take of memory."""
    assembly = channel.Assembly()
    packet = b"\1" + bytes(8 * 1024 * 1024)
    for _ in range(8):
        assembly.add(packet[:-1])
    with pytest.raises(ValueError, match="more than"):
        assembly.add(packet)


def _gone_with_last_words() -> socket.socket:
    """Our end of a pair whose peer said one thing and ended without reading what we had sent."""
    ours, theirs = channel.pair()
    Channel(ours, peer="rank 0").send(Message(kind="credit"))
    Channel(theirs, peer="the supervisor").send(Message(kind="fault", fields={"kind": "nan"}))
    theirs.close()
    return ours


def test_the_last_words_of_a_peer_that_did_not_read_ours_are_heard() -> None:
    """The kernel tells of the unread message first, as a reset connection."""
    with _gone_with_last_words() as ours:
        end = Channel(ours, peer="rank 0")
        assert end.receive().fields == {"kind": "nan"}
        with pytest.raises(PeerLostError, match="rank 0 has closed"):
            end.receive()


def test_the_supervisor_hears_the_last_words_before_the_end() -> None:
    """Otherwise a rank that only lost its peer is taken for one that ended without a word."""
    heard: list[str] = []

    async def listened() -> None:
        with _gone_with_last_words() as ours:
            over = asyncio.Event()

            def lost() -> None:
                heard.append("lost")
                over.set()

            link = Link(ours, on_message=lambda message: heard.append(message.kind), on_lost=lost)
            await over.wait()
            link.close()

    asyncio.run(listened())
    assert heard == ["fault", "lost"]
