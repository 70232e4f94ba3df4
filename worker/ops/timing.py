"""How long a part of a step took on the device, told steps later, so that no step waits for it.

Two timers behind one port. On a GPU the host is far ahead of the device: a clock around a launch
measures the launch, and one around a wait costs the wait. So events are put into the stream, and
their difference is read once the device has passed them. On a CPU the clock itself tells.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

# Steps whose times may be under way; a device that is further behind has hung, and the watchdog
# ends the group.
MAX_PENDING = 64


class Event(Protocol):
    """A mark in the stream of a device; `torch.cuda.Event(enable_timing=True)` is one."""

    def record(self) -> None:
        """Put it where the stream ends now."""
        ...

    def query(self) -> bool:
        """Whether the device has passed it; never waits."""
        ...

    def elapsed_time(self, end_event: "Event", /) -> float:
        """Milliseconds from this one to `end_event`; both must have been passed."""
        ...


NewEvent = Callable[[], Event]


@dataclass(frozen=True, slots=True)
class Timed:
    """What one step took in the part that is timed."""

    number: int  # of the step, from 0: a gap is a time that was lost
    took_ms: float


class StepTimer(Protocol):
    """Times one part of each step: any number of stretches, added up."""

    def begin(self) -> None:
        """A stretch begins."""
        ...

    def end(self) -> None:
        """It ends."""
        ...

    def close(self) -> None:
        """The step is over; what follows belongs to the next."""
        ...

    def late(self) -> list[Timed]:
        """Steps that are known by now and were not told before, in order. Never waits."""
        ...


class HostTimer:
    """For work that is done when the call returns, as on a CPU."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._begun_s: float | None = None
        self._took_s = 0.0
        self._num_steps = 0
        self._known: deque[Timed] = deque(maxlen=MAX_PENDING)

    def begin(self) -> None:
        """See `StepTimer.begin`."""
        assert self._begun_s is None, "a stretch began within another"
        self._begun_s = self._clock()

    def end(self) -> None:
        """See `StepTimer.end`."""
        assert self._begun_s is not None, "a stretch ended that never began"
        self._took_s += self._clock() - self._begun_s
        self._begun_s = None

    def close(self) -> None:
        """See `StepTimer.close`."""
        assert self._begun_s is None, "the step is over and a stretch of it is not"
        self._known.append(Timed(self._num_steps, self._took_s * 1e3))
        self._num_steps += 1
        self._took_s = 0.0

    def late(self) -> list[Timed]:
        """See `StepTimer.late`."""
        known = list(self._known)
        self._known.clear()
        return known


class DeviceTimer:
    """For work that goes on when the call has returned. All stretches are of one stream."""

    def __init__(self, *, num_behind: int = 2, new_event: NewEvent | None = None) -> None:
        """Read steps when `num_behind` later ones have been closed, never earlier."""
        assert num_behind >= 1, "what is read at once is waited for"
        self._num_behind = num_behind
        self._new_event = new_event or cuda_event
        self._free: list[tuple[Event, Event]] = []
        self._step: list[tuple[Event, Event]] = []
        self._is_open = False
        self._num_steps = 0
        self._pending: deque[tuple[int, list[tuple[Event, Event]]]] = deque()

    def begin(self) -> None:
        """See `StepTimer.begin`."""
        assert not self._is_open, "a stretch began within another"
        self._is_open = True
        # Events are made once and used again: making them takes the driver's lock.
        pair = self._free.pop() if self._free else (self._new_event(), self._new_event())
        self._step.append(pair)
        pair[0].record()

    def end(self) -> None:
        """See `StepTimer.end`."""
        assert self._is_open, "a stretch ended that never began"
        self._is_open = False
        self._step[-1][1].record()

    def close(self) -> None:
        """See `StepTimer.close`."""
        assert not self._is_open, "the step is over and a stretch of it is not"
        self._pending.append((self._num_steps, self._step))
        self._num_steps += 1
        self._step = []
        if len(self._pending) > MAX_PENDING:
            _, lost = self._pending.popleft()
            self._free += lost

    def late(self) -> list[Timed]:
        """See `StepTimer.late`."""
        known = []
        while len(self._pending) > self._num_behind and self._is_passed(self._pending[0][1]):
            number, pairs = self._pending.popleft()
            known.append(Timed(number, sum(begun.elapsed_time(end) for begun, end in pairs)))
            self._free += pairs
        return known

    def _is_passed(self, pairs: list[tuple[Event, Event]]) -> bool:
        """A stream is passed in order, so its last mark speaks for all."""
        return not pairs or pairs[-1][1].query()


def cuda_event() -> Event:
    """An event of the present CUDA stream that can be timed."""
    import torch  # the timers themselves need none

    return cast("Event", torch.cuda.Event(enable_timing=True))  # type: ignore[no-untyped-call] # torch leaves it untyped
