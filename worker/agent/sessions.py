"""One session as its server reports it: started, chunks, ended; records come of themselves."""

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from controlplane.contract import vocabulary
from controlplane.contract.records import SessionEnded
from controlplane.contract.vocabulary import EventName, Outcome, Reason
from worker.agent.intent import Draw
from worker.agent.measure import Delivery, Meter, Parts, Reading
from worker.agent.records import Ledger

# A send that returns sooner did not wait for the viewer: that is the event loop's own time.
LEAST_VIEWER_WAIT_S = 0.005

logger = logging.getLogger(__name__)


class Host(Protocol):
    """What a session asks of the agent that opened it."""

    def effective_flags(self) -> Mapping[str, str]:
        """What every rank runs now."""
        ...

    def generation(self) -> int:
        """Last generation accepted."""
        ...

    def on_step(self, parts: Parts) -> None:
        """A step was delivered and told its times; never the first of a session."""
        ...

    def on_session_ended(self, session: "Session") -> None:
        """The session is over and on record."""
        ...


class Session:
    """An open session. Its server calls `deliver` for each chunk and `end` once, from one thread.

    As a context manager it ends by itself: completed, or failed if an exception passes through.
    """

    def __init__(  # noqa: PLR0913 - wiring by the agent, keywords only
        self,
        draw: Draw,
        *,
        ledger: Ledger,
        host: Host,
        clock: Callable[[], float],
        first_forward_length: int,
        is_synthetic: bool,
        window_s: float,
    ) -> None:
        self._draw = draw
        self._ledger = ledger
        self._host = host
        self._clock = clock
        self._first_forward_length = first_forward_length
        self._is_synthetic = is_synthetic
        self._window_s = window_s
        self._window_due_at = clock() + window_s
        self._meter = Meter(draw.flags)
        self._waited_s = 0.0
        self._send_began_at: float | None = None
        self._was_below_floor = False
        self._has_delivered = False
        self._lock = threading.RLock()
        self._ended: SessionEnded | None = None

    @property
    def id(self) -> str:
        """Id of the session."""
        return self._draw.session

    @property
    def draw(self) -> Draw:
        """What the session is to run, fixed at its start."""
        return self._draw

    @property
    def flags(self) -> Mapping[str, str]:
        """Flags drawn for the session."""
        return self._draw.flags

    @property
    def ended(self) -> SessionEnded | None:
        """How it ended; None while it runs."""
        return self._ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._ended is not None:
            return
        if kind is None:
            self.end(Outcome.COMPLETED)
        else:
            self.end(Outcome.FAILED, detail=f"{kind.__name__}: {error}")

    def start(self) -> None:
        """Put `started` in the spool; to be called before the first forward.

        Raises: SpoolFullError.
        """
        self._ledger.write(EventName.SESSION_STARTED, self._who())

    def send_began(self) -> None:
        """A write to the viewer's socket begins; optional, for the measure of the viewer's wait."""
        with self._lock:
            self._send_began_at = self._clock()

    def send_ended(self) -> None:
        """The write has returned."""
        with self._lock:
            self._waited_s = self._pending_wait_s()
            self._send_began_at = None

    def deliver(
        self,
        *,
        num_frames: int,
        at: float | None = None,
        parts: Parts | None = None,
        viewer_wait_s: float = 0.0,
        flags: Mapping[str, str] | None = None,
    ) -> None:
        """Count a chunk whose last frame was handed over at `at` (monotonic seconds; default now).

        `viewer_wait_s` adds to what `send_began` and `send_ended` measured since the chunk before.
        `flags` are those its step ran; default the effective ones. Not counted after the end.
        """
        with self._lock:
            if self._ended is not None:
                return
            delivery = Delivery(
                num_frames=num_frames,
                at=self._clock() if at is None else at,
                flags=self._host.effective_flags() if flags is None else flags,
                viewer_wait_s=self._waited_s + viewer_wait_s,
                parts=parts,
            )
            self._meter.add(delivery)
            self._waited_s = 0.0
            # The time of the first is mostly that of the first forward: no step's.
            if parts is not None and self._has_delivered:
                self._host.on_step(parts)
            self._has_delivered = True

    def reading(self) -> Reading:
        """The measures so far."""
        with self._lock:
            return self._meter.reading(now=self._clock(), pending_wait_s=self._pending_wait_s())

    def write_window_if_due(self) -> None:
        """Write the counters to the spool if the last time was long enough ago."""
        with self._lock:
            now = self._clock()
            if self._ended is not None or now < self._window_due_at:
                return
            # From the due time, not from now, so that windows do not drift; but never a burst.
            self._window_due_at = max(self._window_due_at + self._window_s, now)
            reading = self.reading()
            is_urgent = self._is_first_below_floor(reading)
            fields = self._counters(reading)
            self._ledger.write(EventName.SESSION_WINDOW, fields, is_urgent=is_urgent)

    def end(
        self, outcome: Outcome, *, reason: Reason | None = None, detail: str = ""
    ) -> SessionEnded:
        """End the session and put its last record in the spool; a second end changes nothing.

        A session that completed while its viewer's socket set the pace is `viewer_limited`.

        Raises: OSError if the disk takes no record; the next life then closes it as lost.
        """
        try:
            return self._end(outcome, reason=reason, detail=detail)
        finally:
            self._host.on_session_ended(self)

    def _end(self, outcome: Outcome, *, reason: Reason | None, detail: str) -> SessionEnded:
        with self._lock:
            if self._ended is not None:
                return self._ended
            reading = self.reading()
            if outcome is Outcome.COMPLETED and reading.is_viewer_limited:
                outcome = Outcome.VIEWER_LIMITED
            fields = {
                **self._counters(reading),
                "outcome": outcome,
                "reason": reason,
                "detail": detail[:1000],
                "segments": self._meter.segments(
                    now=self._clock(), pending_wait_s=self._pending_wait_s()
                ),
            }
            is_urgent = _is_bad(outcome, reading)
            record = self._ledger.write(EventName.SESSION_ENDED, fields, is_urgent=is_urgent)
            assert isinstance(record, SessionEnded), "an event has one type of record"
            self._ended = record
        logger.info("session_ended session=%s outcome=%s reason=%s", self.id, outcome, reason)
        return record

    def _pending_wait_s(self) -> float:
        if self._send_began_at is None:
            return self._waited_s
        blocked_s = self._clock() - self._send_began_at
        return self._waited_s + (blocked_s if blocked_s >= LEAST_VIEWER_WAIT_S else 0.0)

    def _is_first_below_floor(self, reading: Reading) -> bool:
        is_first = not self._was_below_floor and _is_below_floor(reading)
        self._was_below_floor = self._was_below_floor or is_first
        return is_first

    def _who(self) -> dict[str, Any]:
        return {
            "generation": self._host.generation(),
            "session": self._draw.session,
            "flags": dict(self._draw.flags),
            "canary": self._draw.canary,
            "arm": self._draw.arm,
            "first_forward_length": self._first_forward_length,
            "is_synthetic": self._is_synthetic,
        }

    def _counters(self, reading: Reading) -> dict[str, Any]:
        names = Reading.__dataclass_fields__
        values = {name: getattr(reading, name) for name in names}
        return {**self._who(), **values, **self._meter.part_means()}


def _is_bad(outcome: Outcome, reading: Reading) -> bool:
    return outcome is Outcome.FAILED or _is_below_floor(reading)


def _is_below_floor(reading: Reading) -> bool:
    if reading.fps is None or not vocabulary.counts_for_rate(reading.streamed_s):
        return False
    return not vocabulary.meets_floor(reading.fps)
