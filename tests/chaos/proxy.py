"""A TCP proxy that treats connections as a bad network does, each as the next fault says.

Runs in a thread of its own, on loopback, and knows nothing of HTTP but where a body may begin.
"""

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

CHUNK_BYTES = 64 * 1024
LATENCY_S = 0.05
# So much of an answer passes before it breaks off: a status line and no whole body.
CUT_AFTER_BYTES = 20


class Fault(StrEnum):
    """What happens to one connection."""

    NONE = "none"
    LATENCY = "latency"  # each piece late, both ways
    RESET_IN_BODY = "reset_in_body"  # the sender is cut off half-way through its request
    LOST_ANSWER = "lost_answer"  # the request arrives whole; its sender is reset: it sends again
    TRUNCATED_ANSWER = "truncated_answer"  # the first bytes of the answer, then a clean end
    HALF_OPEN = "half_open"  # everything is taken and nothing comes back or goes on


class Proxy:
    """Listens on `url`; `fault_of` is asked for each new connection."""

    def __init__(self, *, port: int) -> None:
        self.fault_of: Callable[[], Fault] = lambda: Fault.NONE
        self.num_of: Counter[Fault] = Counter()
        self.url = ""
        self._port = port  # of the server behind
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._is_half_open = threading.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def start(self) -> None:
        """Return when it listens."""
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def stop(self) -> None:
        """Drop every connection and end."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def cut_off(self, *, is_half_open: bool) -> None:
        """From now on, or no more, also open connections carry nothing; none is told."""
        if is_half_open:
            self._is_half_open.set()
        else:
            self._is_half_open.clear()
            self.drop()

    def drop(self) -> None:
        """End every connection in the middle of whatever it carries."""
        self._loop.call_soon_threadsafe(self._drop_all)

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._carry, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._server.close()
        self._drop_all()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _drop_all(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        fault = self.fault_of()
        self.num_of[fault] += 1
        self._writers.add(writer)
        behind: asyncio.StreamWriter | None = None
        try:
            there, behind = await asyncio.open_connection("127.0.0.1", self._port)
            self._writers.add(behind)
            await asyncio.gather(
                self._pump(reader, behind, fault=fault, is_request=True, other=writer),
                self._pump(there, writer, fault=fault, is_request=False, other=behind),
            )
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for one in (writer, behind):
                if one is not None:
                    one.transport.abort()
                    self._writers.discard(one)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        fault: Fault,
        is_request: bool,
        other: asyncio.StreamWriter,
    ) -> None:
        while piece := await source.read(CHUNK_BYTES):
            if self._is_half_open.is_set() or fault is Fault.HALF_OPEN:
                continue
            if fault is Fault.LATENCY:
                await asyncio.sleep(LATENCY_S)
            if is_request and fault is Fault.RESET_IN_BODY:
                sink.write(piece[: len(piece) // 2])
                await sink.drain()
                _reset(other)
                return
            if not is_request and fault is Fault.LOST_ANSWER:
                _reset(sink)
                return
            if not is_request and fault is Fault.TRUNCATED_ANSWER:
                sink.write(piece[:CUT_AFTER_BYTES])
                with suppress(OSError):
                    await sink.drain()
                sink.close()
                return
            sink.write(piece)
            await sink.drain()
        sink.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End it by RST, not by FIN."""
    its: socket.socket | None = writer.get_extra_info("socket")
    if its is not None:
        with suppress(OSError):
            its.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00" + bytes(4))
    writer.transport.abort()


@contextmanager
def proxied(port: int) -> Iterator[Proxy]:
    """A proxy in front of a port of this machine."""
    proxy = Proxy(port=port)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
