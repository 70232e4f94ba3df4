"""Wakes held-open calls in this process; implements `ports.Signals`.

Losing a signal costs time, never truth: whoever waits also looks again every few seconds.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager


class Signals:
    """Topics and the calls that wait for them; `notify` may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.is_closed = False  # held calls answer at once
        self._waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def notify(self, topic: str) -> None:
        """Wake the waiters of `topic`."""
        with self._lock:
            waiting = tuple(self._waiting.get(topic, ()))
        for loop, event in waiting:
            _set(loop, event)

    def close(self) -> None:
        """Wake every waiter, for good: the process stops."""
        self.is_closed = True
        with self._lock:
            topics = tuple(self._waiting)
        for topic in topics:
            self.notify(topic)

    @contextmanager
    def subscription(self, topic: str) -> Iterator[asyncio.Event]:
        """An event that is set by each `notify(topic)` while the block runs.

        Subscribe before looking: a change between the look and the wait is then not lost.
        """
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(topic, set()).add(entry)
        try:
            yield entry[1]
        finally:
            with self._lock:
                self._waiting[topic].discard(entry)
                if not self._waiting[topic]:
                    del self._waiting[topic]

    def num_waiting_by_kind(self) -> dict[str, int]:
        """Calls that wait now, by what stands before the colon of their topic."""
        waiting: Counter[str] = Counter()
        with self._lock:
            for topic, calls in self._waiting.items():
                waiting[topic.partition(":")[0]] += len(calls)
        return dict(waiting)

    def num_waiting(self, topic: str | None = None) -> int:
        """Calls that wait now for `topic`; None: over all topics."""
        with self._lock:
            if topic is not None:
                return len(self._waiting.get(topic, ()))
            return sum(len(waiting) for waiting in self._waiting.values())


async def wait(event: asyncio.Event, *, timeout_s: float) -> bool:
    """Whether `event` was set within `timeout_s`; it is cleared for the next wait."""
    try:
        await asyncio.wait_for(event.wait(), timeout=max(0.0, timeout_s))
    except TimeoutError:
        return False
    event.clear()
    return True


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:  # the loop was closed at shutdown: nobody waits any more
        return
