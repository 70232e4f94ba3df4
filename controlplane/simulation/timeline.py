"""Virtual time: one heap of events, ties broken by a seeded draw, so that a seed is a run."""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(order=True, slots=True)
class _Entry:
    at: datetime
    tie: float
    sequence: int
    action: Callable[[], None] = field(compare=False)


class Timeline:
    """A clock that moves only when the next event is due; implements `ports.Clock`."""

    def __init__(self, *, start: datetime, randomness: random.Random) -> None:
        self._start = start
        self._now = start
        self._randomness = randomness
        self._entries: list[_Entry] = []
        self._num_scheduled = 0

    def now(self) -> datetime:
        """The virtual time."""
        return self._now

    def monotonic(self) -> float:
        """Virtual seconds since the start."""
        return (self._now - self._start).total_seconds()

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        """Have `action` called `delay_s` virtual seconds from now."""
        self._num_scheduled += 1
        at = self._now + timedelta(seconds=delay_s)
        entry = _Entry(at, self._randomness.random(), self._num_scheduled, action)
        heapq.heappush(self._entries, entry)

    def step(self) -> bool:
        """Carry out the next event. Returns False if there is none."""
        if not self._entries:
            return False
        entry = heapq.heappop(self._entries)
        self._now = entry.at
        entry.action()
        return True
