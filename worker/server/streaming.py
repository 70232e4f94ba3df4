"""One session on one socket: frames out by deadline, words in, until one of its ends comes."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from worker.engine.api import Chunk
from worker.server import telling
from worker.server.listening import Listening
from worker.server.pacer import Pacer
from worker.server.ports import Ending, Performance


class Streaming:
    """Hands the chunks of `performance` to `viewer`, each frame when it is due."""

    def __init__(
        self,
        viewer: ServerConnection,
        performance: Performance,
        *,
        rate_fps: float,
        clock: Callable[[], float],
        on_picture: Callable[[bytes], None],
    ) -> None:
        """`on_picture` is given the last JPEG of each chunk once it is handed over."""
        self._viewer = viewer
        self._performance = performance
        self._listening = Listening(viewer, performance, clock=clock)
        self._pacer = Pacer(rate_fps=rate_fps)
        self._clock = clock
        self._on_picture = on_picture

    async def run(self, draining: asyncio.Event) -> Ending:
        """Stream until the first of: the viewer leaves, the worker drains, the engine ends."""
        endings: dict[asyncio.Task[Any], Ending] = {
            asyncio.create_task(self._stream()): Ending.STREAM_ENDED,
            asyncio.create_task(self._viewer.wait_closed()): Ending.VIEWER_LEFT,
            asyncio.create_task(self._listening.run()): Ending.VIEWER_LEFT,
            asyncio.create_task(draining.wait()): Ending.DRAINED,
        }
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in endings:
                task.cancel()
            results = await asyncio.gather(*endings, return_exceptions=True)
        return _ending(endings, done, results)

    async def _stream(self) -> None:
        async with self._performance.chunks() as chunks:
            async for chunk in chunks:
                self._pacer.chunk_came(self._clock())
                await self._send(chunk)

    async def _send(self, chunk: Chunk) -> None:
        if chunk.is_prompt_new:
            await telling.tell(self._viewer, type="prompt_changed", step=chunk.step)
        await telling.tell(self._viewer, type="chunk", frames=len(chunk.frames), step=chunk.step)
        for frame in chunk.frames:
            wait_s = self._pacer.due() - self._clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._performance.send_began()
            await self._viewer.send(frame)
            self._performance.send_ended()
        self._performance.deliver(chunk)
        self._on_picture(chunk.frames[-1])


def _ending(
    endings: Mapping[asyncio.Task[Any], Ending],
    done: set[asyncio.Task[Any]],
    results: Sequence[object],
) -> Ending:
    """The ending to record: a dead engine before all, since it would go unnoticed otherwise.

    Raises: what the stream raised, unless it is only that the viewer has gone.
    """
    for task, result in zip(endings, results, strict=True):
        if task in done and isinstance(result, ConnectionClosed):
            return Ending.VIEWER_LEFT
        if task in done and isinstance(result, BaseException):
            raise result
    return next(ending for task, ending in endings.items() if task in done)
