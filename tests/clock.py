"""A clock that tests move by hand, and ids that count."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count

START = datetime(2026, 10, 8, 12, 0, tzinfo=UTC)


class FakeClock:
    """Implements `ports.Clock`; time passes only by `advance`."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._now = start

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return (self._now - self._start).total_seconds()

    def advance(self, *, hours: float = 0, minutes: float = 0, seconds: float = 0) -> datetime:
        """Let time pass; returns the time it is then."""
        self._now += timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return self._now


class CountingId:
    """Implements `ports.NewId`: ids that count up, in the form of a UUIDv7 and sorted as made."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = count(1)

    def __call__(self) -> str:
        return f"00000000-0000-7000-8000-{next(self._numbers):012d}"
