"""The flag `fp8_monitor`: whether and how a rank looks at the numbers that FP8 had to clamp.

The counts are on the device, where the write of keys and values adds to them. `off` leaves them
there. `async` copies them once a step and reads what has arrived. `sync` reads them in every step,
so that the host waits for the device each time: the fault that took a step from 168.5 to 278 ms,
kept for demonstrations and for the detector of host synchronisation.
"""

# ruff: noqa: N802 - shape suffixes in names; the legend is below

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from torch import Tensor

# Caches that were replaced and whose last counts are still to arrive, within a step or two. Of one
# too many, what is known already is kept.
_MAX_LEAVING = 8


# B = blocks, H = heads of this rank; the 2 are keys and values
class Clamps(Protocol):
    """What a cache in FP8 counts; `worker.cache.scales.ClampCounts` is one."""

    @property
    def on_device_2BH(self) -> Tensor:
        """The counts of this cache so far, where they are counted."""
        ...

    def publish(self) -> None:
        """Start a copy to the host. Never waits."""
        ...

    def late(self) -> Tensor | None:
        """What was published before the last time; None if it is not here. Never waits."""
        ...


class Fp8Monitor(Protocol):
    """Watches the caches of one rank, one after the other."""

    def stepped(self, clamps: Clamps | None) -> None:
        """A step has been computed; `clamps` are those of its cache, None if that has no FP8.

        A cache that another has followed does not come back.
        """
        ...

    def counts(self) -> Tensor | None:
        """Clamped so far in all caches, [2, B, H], int64 on the host; it never falls.

        None: nothing is known, which is not the same as nothing was clamped. Never waits.
        """
        ...


class Off:
    """Nobody looks."""

    def stepped(self, clamps: Clamps | None) -> None:
        """See `Fp8Monitor.stepped`; leaves the device alone."""

    def counts(self) -> Tensor | None:
        """See `Fp8Monitor.counts`."""
        return None


@dataclass(slots=True)
class _Leaving:
    """A cache that is gone, but for its counts."""

    clamps: Clamps
    known: Tensor | None


class Async:
    """Publishes once a step and reads late."""

    def __init__(self) -> None:
        """No cache yet."""
        self._arrived: Tensor | None = None  # of caches that are gone and wholly told
        self._leaving: deque[_Leaving] = deque()
        self._watched: Clamps | None = None
        self._known: Tensor | None = None  # of the watched one

    def stepped(self, clamps: Clamps | None) -> None:
        """See `Fp8Monitor.stepped`."""
        if clamps is not self._watched:
            self._leave()
            self._watched = clamps
        if clamps is not None:
            clamps.publish()
        self._settle()

    def counts(self) -> Tensor | None:
        """See `Fp8Monitor.counts`; those of the last steps are still to come."""
        self._settle()
        if self._watched is not None:
            self._known = _newer(self._watched.late(), self._known)
        leaving = (each.known for each in self._leaving)
        return _sum(self._arrived, self._known, *leaving)

    def _leave(self) -> None:
        """Let go of the watched cache, whose last step was published: once more brings it in."""
        if self._watched is None:
            return
        known = _newer(self._watched.late(), self._known)
        self._watched.publish()
        self._leaving.append(_Leaving(self._watched, known))
        self._watched = self._known = None
        if len(self._leaving) > _MAX_LEAVING:
            self._arrived = _sum(self._arrived, self._leaving.popleft().known)

    def _settle(self) -> None:
        while self._leaving:
            last = self._leaving[0].clamps.late()
            if last is None:
                return
            self._arrived = _sum(self._arrived, last)
            self._leaving.popleft()


class Sync:
    """Reads in every step what the device has not yet computed. For demonstrations only."""

    def __init__(self) -> None:
        """No cache yet."""
        self._arrived: Tensor | None = None
        self._watched: Clamps | None = None
        self._known: Tensor | None = None
        self._num_clamped = 0

    def stepped(self, clamps: Clamps | None) -> None:
        """See `Fp8Monitor.stepped`; waits for the device."""
        if clamps is not self._watched:
            self._arrived, self._known = _sum(self._arrived, self._known), None
            self._watched = clamps
        if clamps is None:
            return
        num_clamped = int(clamps.on_device_2BH.sum().item())
        if self._known is None or num_clamped != self._num_clamped:
            self._known = clamps.on_device_2BH.cpu().clone()
        self._num_clamped = num_clamped

    def counts(self) -> Tensor | None:
        """See `Fp8Monitor.counts`."""
        return _sum(self._arrived, self._known)


MONITORS: Mapping[str, Callable[[], Fp8Monitor]] = MappingProxyType(
    {"off": Off, "async": Async, "sync": Sync}
)


def _newer(arrived: Tensor | None, known: Tensor | None) -> Tensor | None:
    return known if arrived is None else arrived


def _sum(*parts: Tensor | None) -> Tensor | None:
    known = [part for part in parts if part is not None]
    if not known:
        return None
    total = known[0].clone()
    for part in known[1:]:
        total += part
    return total
