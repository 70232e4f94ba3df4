"""One session as its viewer has it: what was asked, what came, and when."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from controlplane.contract import vocabulary

CONNECT_TIMEOUT_S = 5.0
# The first frame may wait for a flip and a prefill; later ones for a group's timeout.
FRAME_TIMEOUT_S = 15.0
MAX_FRAME_BYTES = 16 * 1024 * 1024


class BusyError(Exception):
    """The worker takes no session now; another try later may succeed."""


class ViewerError(Exception):
    """The worker will not serve this request, or does not speak the protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one viewer wants."""

    first_forward_length: int  # tokens
    seed: int
    seconds: float  # how long to watch, from the first chunk
    is_synthetic: bool = True
    session: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What one viewer had."""

    session: str
    first_forward_length: int
    flags: Mapping[str, str] = field(default_factory=dict)
    num_frames: int
    num_first_chunk_frames: int
    streamed_s: float  # from the first chunk to the last
    first_frame_ms: float | None  # from the request
    longest_gap_ms: float  # between two frames
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
        async with connect(
            url,
            open_timeout=CONNECT_TIMEOUT_S,
            max_size=MAX_FRAME_BYTES,
            compression=None,
            proxy=None,  # workers are inside the cluster
        ) as worker:
            return await _Watching(worker, ask, clock=clock).run()
    except (TimeoutError, ConnectionClosed) as error:
        message = f"{url}: {type(error).__name__} before the session began"
        raise ViewerError(message) from error


class _Watching:
    """Counts what comes over one connection."""

    def __init__(self, worker: ClientConnection, ask: Ask, *, clock: Callable[[], float]) -> None:
        self._worker = worker
        self._ask = ask
        self._clock = clock
        self._started: dict[str, Any] = {}
        self._num_frames_due = 0  # of the chunk that is coming
        self._num_frames_come = 0
        self._num_frames = 0  # of whole chunks
        self._num_first_chunk_frames = 0
        self._asked_at = 0.0
        self._first_frame_at: float | None = None
        self._first_chunk_at: float | None = None
        self._last_chunk_at = 0.0
        self._last_frame_at = 0.0
        self._longest_gap_s = 0.0

    async def run(self) -> Seen:
        await self._ask_for_session()
        outcome, reason = "left", None
        while not self._has_seen_enough():
            try:
                message = await self._receive()
            except (ConnectionClosed, TimeoutError):
                outcome = "cut_off"
                break
            if isinstance(message, bytes):
                self._note_frame(self._clock())
            elif message["type"] == "chunk":
                self._num_frames_due = int(message["frames"])
            elif message["type"] == "ended":
                outcome, reason = str(message["outcome"]), message["reason"]
                break
        return self._seen(outcome=outcome, reason=reason)

    async def _ask_for_session(self) -> None:
        request: dict[str, int | str | bool] = {
            "first_forward_length": self._ask.first_forward_length,
            "seed": self._ask.seed,
            "is_synthetic": self._ask.is_synthetic,
        }
        if self._ask.session is not None:
            request["session"] = self._ask.session
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

    def _note_frame(self, now: float) -> None:
        if self._first_frame_at is None:
            self._first_frame_at = now
        else:
            self._longest_gap_s = max(self._longest_gap_s, now - self._last_frame_at)
        self._last_frame_at = now
        self._num_frames_come += 1
        if self._num_frames_come == self._num_frames_due:
            self._note_chunk(self._num_frames_come)
            self._num_frames_come = 0

    def _note_chunk(self, num_frames: int) -> None:
        # A chunk is there when its last frame is, as on the worker.
        self._num_frames += num_frames
        self._last_chunk_at = self._last_frame_at
        if self._first_chunk_at is None:
            self._first_chunk_at = self._last_chunk_at
            self._num_first_chunk_frames = num_frames

    def _has_seen_enough(self) -> bool:
        if self._first_chunk_at is None:
            return False
        return self._last_chunk_at - self._first_chunk_at >= self._ask.seconds

    def _seen(self, *, outcome: str, reason: str | None) -> Seen:
        first_at = self._first_frame_at
        return Seen(
            session=self._started["session"],
            first_forward_length=self._ask.first_forward_length,
            flags=self._started["flags"],
            num_frames=self._num_frames,
            num_first_chunk_frames=self._num_first_chunk_frames,
            streamed_s=self._last_chunk_at - (self._first_chunk_at or self._last_chunk_at),
            first_frame_ms=None if first_at is None else (first_at - self._asked_at) * 1000,
            longest_gap_ms=self._longest_gap_s * 1000,
            outcome=outcome,
            reason=reason,
        )
