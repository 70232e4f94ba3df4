"""What the core needs of the outside, as protocols; adapters and fakes implement them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """Wall and monotonic time."""

    def now(self) -> datetime:
        """Aware UTC time."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never steps."""
        ...


class NewId(Protocol):
    """Makes unique ids that sort by time (UUIDv7)."""

    def __call__(self) -> str:
        """A new id."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A worker's processes as the cluster sees them."""

    fleet: str
    worker: str
    is_running: bool
    num_restarts: int


class Cluster(Protocol):
    """Where worker processes live. Every act is idempotent."""

    def instances(self) -> Sequence[Instance]:
        """What runs now."""
        ...

    def restart(self, *, fleet: str, worker: str, reason: str) -> None:
        """Replace the worker's processes; harmless if they are being replaced."""
        ...


class Signals(Protocol):
    """Tells whoever waits that something has changed; losing a signal costs time, never truth."""

    def notify(self, topic: str) -> None:
        """Wake the waiters of `topic`; topics are `worker:{id}`, `canaries` and `tick`."""
        ...
