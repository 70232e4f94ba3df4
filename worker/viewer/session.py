"""One session as its viewer has it: what was asked, what came, and when."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from controlplane.contract import vocabulary
from worker.viewer.arrivals import Arrivals
from worker.viewer.playback import Playback, Reading
from worker.viewer.script import Line, Pause

CONNECT_TIMEOUT_S = 5.0
# The first frame may wait for a flip and a prefill; later ones for a group's timeout.
FRAME_TIMEOUT_S = 15.0
MAX_FRAME_BYTES = 16 * 1024 * 1024
MAX_REJECTIONS = 100  # that are kept


class BusyError(Exception):
    """The worker takes no session now; another try later may succeed."""


class ViewerError(Exception):
    """The worker will not serve this request, or does not speak the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one viewer wants, and does meanwhile."""

    first_forward_length: int | None = None  # tokens; left out if there is a prompt
    prompt: str | None = None
    seed: int
    seconds: float  # how long to watch, from the first chunk
    is_synthetic: bool = True
    session: str | None = None
    lines: Sequence[Line] = ()
    pauses: Sequence[Pause] = ()
    num_start_chunks: int = 1  # that its player waits for
    # Of the socket, above which it takes one frame at a time; None: as much as the system gives.
    receive_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one viewer had."""

    session: str
    first_forward_length: int | None
    flags: Mapping[str, str] = field(default_factory=dict)
    num_frames: int
    num_first_chunk_frames: int
    streamed_s: float  # from the first chunk to the last, or to the end if the next was overdue
    first_frame_ms: float | None  # from the request
    longest_gap_ms: float  # between two frames
    num_late_chunks: int
    longest_stall_ms: float
    num_step_gaps: int
    playback: Reading  # of a player at 24 frames a second
    paused_s: float = 0.0  # in which it read nothing, of its own will
    prompt_steps: tuple[int, ...] = ()  # from which another prompt was in effect
    rejections: tuple[Mapping[str, Any], ...] = ()
    outcome: str  # as the worker told it; `left` if the viewer left first
    reason: str | None = None

    @property
    def fps(self) -> float | None:
        """Session fps, by the same formula as the worker's."""
        return vocabulary.session_fps(
            num_frames=self.num_frames,
            num_first_chunk_frames=self.num_first_chunk_frames,
            streamed_s=self.streamed_s,
        )


async def watch(url: str, ask: Ask, *, clock: Callable[[], float] = time.monotonic) -> Seen:
    """Ask the worker at `url` for one session and watch it for as long as asked.

    Raises: BusyError, ViewerError; OSError if nobody listens.
    """
    try:
        async with await _connected(url, receive_bytes=ask.receive_bytes) as worker:
            seen = await _Watching(worker, ask, clock=clock).run()
            if ask.receive_bytes is not None:
                # A farewell would wait behind frames that it does not read any more.
                worker.transport.abort()
            return seen
    except (TimeoutError, ConnectionClosed) as error:
        message = f"{url}: {type(error).__name__} before the session began"
        raise ViewerError(message) from error


async def _connected(url: str, *, receive_bytes: int | None) -> ClientConnection:
    """A connection to the worker at `url`. Raises: TimeoutError, OSError."""
    options: dict[str, Any] = {}
    if receive_bytes is not None:
        options = {"sock": await _small_socket(url, receive_bytes), "max_queue": 1}
    return await connect(
        url,
        open_timeout=CONNECT_TIMEOUT_S,
        max_size=MAX_FRAME_BYTES,
        compression=None,
        proxy=None,  # workers are inside the cluster
        **options,
    )


async def _small_socket(url: str, receive_bytes: int) -> socket.socket:
    parts = urlsplit(url)
    small = socket.socket(socket.AF_INET6 if ":" in str(parts.hostname) else socket.AF_INET)
    # Before it connects: the window that is agreed on depends on it.
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    small.setblocking(False)  # noqa: FBT003 - the standard library's signature
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(small, (parts.hostname, parts.port))
    except BaseException:
        small.close()
        raise
    return small


class _Watching:
    """Counts what comes over one connection, and says what the ask has it say."""

    def __init__(self, worker: ClientConnection, ask: Ask, *, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._ask = ask
        self._clock = clock
        self._arrivals = Arrivals()
        self._playback = Playback(
            rate_fps=vocabulary.SLOW_FPS, num_start_chunks=ask.num_start_chunks
        )
        self._started: dict[str, Any] = {}
        self._step = 0
        self._num_frames_due = 0  # of the chunk that is coming
        self._num_frames_come = 0
        self._asked_at = 0.0
        self._paused_s = 0.0
        self._prompt_steps: list[int] = []
        self._rejections: list[Mapping[str, Any]] = []

    async def run(self) -> Seen:
        await self._ask_for_session()
        outcome, reason = "left", None
        while not self._arrivals.have_lasted(self._ask.seconds):
            try:
                message = await self._receive()
                if isinstance(message, bytes):
                    self._note_frame(self._clock())
                    continue
                await self._note_text(message)
            except (ConnectionClosed, TimeoutError):
                outcome = "cut_off"
                break
            if message["type"] == "ended":
                outcome, reason = str(message["outcome"]), message["reason"]
                break
        return self._seen(outcome=outcome, reason=reason)

    async def _ask_for_session(self) -> None:
        ask = self._ask
        wanted = {
            "first_forward_length": ask.first_forward_length,
            "prompt": ask.prompt,
            "seed": ask.seed,
            "is_synthetic": ask.is_synthetic,
            "session": ask.session,
        }
        request = {key: value for key, value in wanted.items() if value is not None}
        self._asked_at = self._clock()
        await self._worker.send(json.dumps(request))
        answer = await self._receive()
        if isinstance(answer, bytes):
            message = "the worker sent a frame before it said that the session started"
            raise ViewerError(message)
        if answer["type"] == "refused":
            is_final = answer["code"] == "bad_request"
            raise (ViewerError if is_final else BusyError)(f"{answer['code']}: {answer['reason']}")
        self._started = answer

    async def _receive(self) -> bytes | dict[str, Any]:
        """A frame, or a text of the protocol."""
        async with asyncio.timeout(FRAME_TIMEOUT_S):
            received = await self._worker.recv()
        if isinstance(received, bytes):
            return received
        message = json.loads(received)
        if not isinstance(message, dict) or "type" not in message:
            error = "the worker sent a text that is not of the protocol"
            raise ViewerError(error)
        return message

    async def _note_text(self, message: Mapping[str, Any]) -> None:
        match message["type"]:
            case "chunk":
                self._step = int(message["step"])
                self._num_frames_due = int(message["frames"])
                await self._act(self._step)
            case "prompt_changed":
                self._prompt_steps.append(int(message["step"]))
            case "rejected" if len(self._rejections) < MAX_REJECTIONS:
                self._rejections.append(message)
            case _:
                pass  # a later worker may say more

    async def _act(self, step: int) -> None:
        for line in self._ask.lines:
            if line.step == step:
                await self._worker.send(line.message())
        for pause in self._ask.pauses:
            if pause.step == step:
                await asyncio.sleep(pause.seconds)
                self._paused_s += pause.seconds

    def _note_frame(self, now: float) -> None:
        self._arrivals.add_frame(now)
        self._num_frames_come += 1
        if self._num_frames_come == self._num_frames_due:
            self._arrivals.add_chunk(now, num_frames=self._num_frames_come, step=self._step)
            self._playback.add(now, num_frames=self._num_frames_come)
            self._num_frames_come = 0

    def _seen(self, *, outcome: str, reason: str | None) -> Seen:
        now = self._clock()
        counts = self._arrivals.counts(now)
        first_at = self._arrivals.first_frame_at
        return Seen(
            session=self._started["session"],
            first_forward_length=self._ask.first_forward_length,
            flags=self._started["flags"],
            num_frames=counts.num_frames,
            num_first_chunk_frames=counts.num_first_chunk_frames,
            streamed_s=counts.streamed_s,
            first_frame_ms=None if first_at is None else (first_at - self._asked_at) * 1000,
            longest_gap_ms=counts.longest_gap_ms,
            num_late_chunks=counts.num_late_chunks,
            longest_stall_ms=counts.longest_stall_ms,
            num_step_gaps=counts.num_step_gaps,
            playback=self._playback.reading(now),
            paused_s=self._paused_s,
            prompt_steps=tuple(self._prompt_steps),
            rejections=tuple(self._rejections),
            outcome=outcome,
            reason=reason,
        )
