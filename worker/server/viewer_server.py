"""Serves viewers on one port: one session at a time, and plain HTTP for probes and the preview.

The viewer's protocol is described in docs/viewer-protocol.md. Plain HTTP GET on the same port:
/livez, /readyz, /preview.jpg.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from http import HTTPStatus

from websockets.asyncio import server as ws_server
from websockets.asyncio.server import ServerConnection
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request as HttpRequest
from websockets.http11 import Response

from worker.server import requests, telling
from worker.server.pacer import RATE_FPS
from worker.server.ports import Ending, Performance, Stage
from worker.server.refusals import Refusal, RefusalCode
from worker.server.streaming import Streaming

GOODBYE_TIMEOUT_S = 5.0
MAX_REQUEST_BYTES = 16 * 1024
# What has not left this machine yet counts as delivered, so it is kept small: the system would hold
# megabytes, which are seconds. With what waits above the socket (32 KiB) less than one large frame.
# What is on its way is not bounded, so that a distant viewer is no slower for it.
MAX_UNSENT_BYTES = 32 * 1024

logger = logging.getLogger(__name__)


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
            await telling.refuse(viewer, refusal)
            return
        except ConnectionClosed:
            return
        _bound_unsent(viewer)
        try:
            await self._perform(viewer, performance)
        finally:
            self._idle.set()

    async def _admit(self, viewer: ServerConnection) -> Performance:
        request = await requests.received(viewer)
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
        streaming = Streaming(
            viewer,
            performance,
            rate_fps=self._rate_fps,
            clock=self._clock,
            on_picture=self._show,
        )
        try:
            await telling.tell(viewer, type="started", session=performance.session,
                               flags=dict(performance.flags), rate_fps=self._rate_fps)  # fmt: skip
            ending = await streaming.run(self._stage.draining)
        except ConnectionClosed:
            ending = Ending.VIEWER_LEFT
        finally:
            ended = await performance.finish(ending)
        await telling.say_goodbye(viewer, ended)

    def _show(self, picture: bytes) -> None:
        self._preview = picture

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


def _bound_unsent(viewer: ServerConnection) -> None:
    connection: socket.socket = viewer.transport.get_extra_info("socket")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
