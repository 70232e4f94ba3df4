"""The socket a viewer speaks to: JPEG frames, paced by deadline, one session at a time.

Knows pacing and the viewer's protocol; what a session is and which flags it runs is the stage's.

The viewer sends one JSON text: `{"first_forward_length": 77, "seed": 1}`, optionally `session` and
`is_synthetic`. It gets JSON texts by `type`: `started` once; `chunk` with the number of binary
messages, one JPEG each, that follow; `ended` with the outcome; or `refused` with code and
reason. It may leave at any moment by closing. Plain HTTP GET on the same port: /livez, /readyz,
/preview.jpg.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from http import HTTPStatus
from typing import Annotated, Any, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from websockets.asyncio import server as ws_server
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response

from controlplane.contract.messages import Identifier
from controlplane.contract.records import SessionEnded
from worker.engine.api import Chunk

# Above the 24 fps that a session is held to: at the target itself every jitter would be a miss.
RATE_FPS = 25.0
REQUEST_TIMEOUT_S = 5.0
GOODBYE_TIMEOUT_S = 5.0
MAX_REQUEST_BYTES = 16 * 1024
CLOSE_TRY_AGAIN = 1013
CLOSE_BAD_REQUEST = 1008
CLOSE_NORMAL = 1000

logger = logging.getLogger(__name__)


class Request(BaseModel):
    """What a viewer asks for."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    first_forward_length: Annotated[int, Field(ge=0, le=1_000_000)]
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 0
    is_synthetic: bool = False
    session: Identifier | None = None


class RefusalCode(StrEnum):
    """Why a viewer is not served; all but a bad request may be tried again."""

    BUSY = "busy"
    NOT_ADMITTING = "not_admitting"
    NOT_READY = "not_ready"
    BAD_REQUEST = "bad_request"


class Refusal(Exception):  # noqa: N818 - an answer to the viewer, not an error of ours
    """The worker does not serve this viewer."""

    def __init__(self, code: RefusalCode, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.code = code
        self.reason = reason


class Ending(StrEnum):
    """What brought a session to its end, as the server sees it."""

    VIEWER_LEFT = "viewer_left"
    DRAINED = "drained"
    STREAM_ENDED = "stream_ended"  # the engine yields no more: it has failed


class Performance(Protocol):
    """One session while it is streamed."""

    @property
    def session(self) -> str:
        """Id of the session."""
        ...

    @property
    def flags(self) -> Mapping[str, str]:
        """Flags drawn for it."""
        ...

    def chunks(self) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """The chunks in order; leaving the context frees the engine."""
        ...

    def send_began(self) -> None:
        """A write to the viewer begins."""
        ...

    def send_ended(self) -> None:
        """The write has returned."""
        ...

    def deliver(self, chunk: Chunk) -> None:
        """The last frame of `chunk` has just been handed over."""
        ...

    async def finish(self, ending: Ending) -> SessionEnded:
        """End the session and put its last record in the spool."""
        ...


class Stage(Protocol):
    """What the server asks of whoever owns the engine."""

    @property
    def draining(self) -> asyncio.Event:
        """Set while running sessions are to end."""
        ...

    def refusal(self) -> Refusal | None:
        """Why no session may start now."""
        ...

    async def begin(self, request: Request) -> Performance:
        """Start a session; its record is in the spool, its flags are effective or on their way.

        Raises: Refusal.
        """
        ...


class Pacer:
    """When each frame is due: a steady beat that a late chunk moves and nothing catches up."""

    def __init__(self, *, rate_fps: float) -> None:
        self._period_s = 1 / rate_fps
        self._next_at: float | None = None

    def chunk_came(self, now: float) -> None:
        """A chunk is at hand; if its first frame was due before, the beat starts anew from now."""
        if self._next_at is None or now > self._next_at:
            self._next_at = now

    def due(self) -> float:
        """When the next frame is due; each call counts one frame."""
        assert self._next_at is not None, "a frame belongs to a chunk that came"
        due_at = self._next_at
        self._next_at += self._period_s
        return due_at


class ViewerServer:
    """Serves viewers on one port until it is closed."""

    def __init__(
        self,
        stage: Stage,
        *,
        rate_fps: float = RATE_FPS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stage = stage
        self._rate_fps = rate_fps
        self._clock = clock
        self._idle = asyncio.Event()
        self._idle.set()
        self._preview: bytes | None = None
        self._server: ws_server.Server | None = None

    async def open(self, *, host: str, port: int) -> int:
        """Listen, and return the port, which the system chooses if `port` is 0."""
        self._server = await ws_server.serve(
            self._serve,
            host,
            port,
            process_request=self._answer_http,
            compression=None,  # JPEG does not get smaller
            max_size=MAX_REQUEST_BYTES,
        )
        return int(next(iter(self._server.sockets)).getsockname()[1])

    async def close(self) -> None:
        """Stop listening, give the running session a moment for its goodbye, then close."""
        if self._server is not None:
            self._server.close(close_connections=False)
            await self._wait_until_idle()
            self._server.close()
            await self._server.wait_closed()

    async def _wait_until_idle(self) -> None:
        try:
            async with asyncio.timeout(GOODBYE_TIMEOUT_S):
                await self._idle.wait()
        except TimeoutError:
            logger.warning("session_cut_off")

    async def _serve(self, viewer: ServerConnection) -> None:
        try:
            performance = await self._admit(viewer)
        except Refusal as refusal:
            await _refuse(viewer, refusal)
            return
        except ConnectionClosed:
            return
        try:
            await self._perform(viewer, performance)
        finally:
            self._idle.set()

    async def _admit(self, viewer: ServerConnection) -> Performance:
        request = await _request(viewer)
        if not self._idle.is_set():
            raise Refusal(RefusalCode.BUSY, "a session is running, one at a time")
        refusal = self._stage.refusal()
        if refusal is not None:
            raise refusal
        # No await between the look and the mark, so that two viewers cannot both pass.
        self._idle.clear()
        try:
            return await self._stage.begin(request)
        except BaseException:
            self._idle.set()
            raise

    async def _perform(self, viewer: ServerConnection, performance: Performance) -> None:
        # Until shown otherwise, so that an error on the way is not recorded as a good end.
        ending = Ending.STREAM_ENDED
        try:
            await _tell(viewer, type="started", session=performance.session,
                        flags=dict(performance.flags), rate_fps=self._rate_fps)  # fmt: skip
            ending = await self._stream_until_end(viewer, performance)
        except ConnectionClosed:
            ending = Ending.VIEWER_LEFT
        finally:
            ended = await performance.finish(ending)
        await self._say_goodbye(viewer, ended)

    async def _stream_until_end(self, viewer: ServerConnection, performance: Performance) -> Ending:
        """Stream until the first of: the viewer leaves, the worker drains, the engine ends."""
        endings: dict[asyncio.Task[Any], Ending] = {
            asyncio.create_task(self._stream(viewer, performance)): Ending.STREAM_ENDED,
            asyncio.create_task(viewer.wait_closed()): Ending.VIEWER_LEFT,
            asyncio.create_task(self._stage.draining.wait()): Ending.DRAINED,
        }
        try:
            done, _ = await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in endings:
                task.cancel()
            results = await asyncio.gather(*endings, return_exceptions=True)
        return _ending(endings, done, results)

    async def _stream(self, viewer: ServerConnection, performance: Performance) -> None:
        pacer = Pacer(rate_fps=self._rate_fps)
        async with performance.chunks() as chunks:
            async for chunk in chunks:
                pacer.chunk_came(self._clock())
                await self._send(viewer, performance, chunk, pacer)

    async def _send(
        self, viewer: ServerConnection, performance: Performance, chunk: Chunk, pacer: Pacer
    ) -> None:
        await _tell(viewer, type="chunk", frames=len(chunk.frames), step=chunk.step)
        for frame in chunk.frames:
            wait_s = pacer.due() - self._clock()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            performance.send_began()
            await viewer.send(frame)
            performance.send_ended()
        performance.deliver(chunk)
        self._preview = chunk.frames[-1]

    async def _say_goodbye(self, viewer: ServerConnection, ended: SessionEnded) -> None:
        try:
            await _tell(
                viewer,
                type="ended",
                session=ended.session,
                outcome=ended.outcome,
                reason=ended.reason,
                num_frames=ended.num_frames,
            )
            await viewer.close(CLOSE_NORMAL)
        except ConnectionClosed:
            logger.debug("viewer_gone session=%s", ended.session)

    def _answer_http(self, viewer: ServerConnection, request: HttpRequest) -> Response | None:
        """An answer to a plain GET, or None to go on with a WebSocket."""
        path = request.path.partition("?")[0]
        match path:
            case "/livez":
                return viewer.respond(HTTPStatus.OK, "alive\n")
            case "/readyz":
                refusal = self._stage.refusal()
                if refusal is None:
                    return viewer.respond(HTTPStatus.OK, "ready\n")
                return viewer.respond(HTTPStatus.SERVICE_UNAVAILABLE, f"{refusal.reason}\n")
            case "/preview.jpg":
                return self._preview_response(viewer)
            case _:
                return None

    def _preview_response(self, viewer: ServerConnection) -> Response:
        if self._preview is None:
            return viewer.respond(HTTPStatus.NOT_FOUND, "no frame yet\n")
        headers = Headers(
            {
                "Content-Type": "image/jpeg",
                "Content-Length": str(len(self._preview)),
                "Cache-Control": "no-store",
                "Connection": "close",
            }
        )
        return Response(HTTPStatus.OK, "OK", headers, self._preview)


async def _request(viewer: ServerConnection) -> Request:
    """What the viewer asks for. Raises: Refusal, ConnectionClosed."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            text = await viewer.recv()
        return Request.model_validate_json(text)
    except TimeoutError as error:
        reason = f"no request within {REQUEST_TIMEOUT_S:.0f} s"
        raise Refusal(RefusalCode.BAD_REQUEST, reason) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"]) or "request"
        reason = f"{key}: {first['msg']}"
        raise Refusal(RefusalCode.BAD_REQUEST, reason) from error


async def _refuse(viewer: ServerConnection, refusal: Refusal) -> None:
    is_bad = refusal.code is RefusalCode.BAD_REQUEST
    try:
        await _tell(viewer, type="refused", code=refusal.code, reason=refusal.reason)
        # A close reason holds 123 bytes.
        reason = f"{refusal.code}: {refusal.reason}"[:100]
        await viewer.close(CLOSE_BAD_REQUEST if is_bad else CLOSE_TRY_AGAIN, reason)
    except ConnectionClosed:
        logger.debug("viewer_gone code=%s", refusal.code)


async def _tell(viewer: ServerConnection, **fields: object) -> None:
    await viewer.send(json.dumps(fields))


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
