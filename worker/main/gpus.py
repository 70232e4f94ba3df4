"""Power, clocks and memory of the worker's GPUs, read by a thread of the supervisor's process.

Never in a rank, and never in the loop: a call to a driver may take a while, or for ever. What
cannot be read is None, told once in the log; it is never a zero.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from pydantic import ValidationError

from controlplane.contract.telemetry import GpuReading
from worker.agent import threads

# Between two tries to reach a driver: it may be loaded after the worker, or anew.
RETRY_S = 60.0
# Readings that are older are not of this window.
MOST_PERIODS = 2

logger = logging.getLogger(__name__)


class GpuError(Exception):
    """A driver, or one of its calls, does not answer; the message says which and why."""


class Board(Protocol):
    """One GPU. Each call raises `GpuError` where its driver does not tell."""

    @property
    def index(self) -> int:
        """Its number, as the driver counts."""
        ...

    def power_w(self) -> float:
        """Drawn now, watts."""
        ...

    def sm_clock_mhz(self) -> float:
        """Of its multiprocessors now, megahertz."""
        ...

    def memory_used_bytes(self) -> int:
        """By all processes."""
        ...

    def throttle_reasons(self) -> list[str]:
        """Why its clocks are held down now, in the driver's words."""
        ...


_FIELDS = ("power_w", "sm_clock_mhz", "memory_used_bytes", "throttle_reasons")


class GpuSampler:
    """Reads every board again and again, and keeps the newest readings."""

    def __init__(
        self,
        boards: Callable[[], Sequence[Board]],
        *,
        period_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`boards` reaches the driver, and raises `GpuError` where there is none."""
        self._find_boards = boards
        self._period_s = period_s
        self._clock = clock
        self._stopping = threading.Event()
        self._newest: tuple[float, list[GpuReading]] | None = None
        self._told: set[str] = set()  # bounded: a line a field of a board, and one without boards

    def start(self) -> None:
        """Begin to read, in a thread of its own."""
        threads.started({"gpus": self.run}, stopping=self._stopping)

    def stop(self) -> None:
        """Read no more. Does not wait for a call that is under way: it may never return."""
        self._stopping.set()

    def readings(self) -> list[GpuReading] | None:
        """The newest, at once; None if there are no GPUs or the readings are old."""
        newest = self._newest
        if newest is None or self._clock() - newest[0] > MOST_PERIODS * self._period_s:
            return None
        return list(newest[1])

    def run(self, stopping: threading.Event) -> None:
        """Read until `stopping` is set, or for good where no GPU is this worker's."""
        while not stopping.is_set():
            try:
                boards = self._find_boards()
            except GpuError as error:
                self._tell_once("driver", error)
                stopping.wait(RETRY_S)
                continue
            if not boards:
                return
            while not stopping.is_set() and self.sample(boards):
                stopping.wait(self._period_s)
            stopping.wait(self._period_s)

    def sample(self, boards: Sequence[Board]) -> bool:
        """Read `boards` once; False if none of them tells anything, as after a driver is gone."""
        begun_at = self._clock()
        readings = [self._reading(board) for board in boards]
        is_alive = any(reading.model_fields_set > {"index"} for reading in readings)
        # From the begin: a call that hung for an hour tells of an hour ago.
        self._newest = (begun_at, readings) if is_alive else None
        return is_alive

    def _reading(self, board: Board) -> GpuReading:
        told: dict[str, Any] = {"index": board.index}
        for field in _FIELDS:
            try:
                value = getattr(board, field)()
                # Each for itself: a value that cannot be is none, and spoils no other.
                GpuReading.model_validate({"index": board.index, field: value})
            except (GpuError, ValidationError) as error:
                self._tell_once(f"gpu {board.index} {field}", error)
            else:
                told[field] = value
        return GpuReading.model_validate(told)

    def _tell_once(self, what: str, error: Exception) -> None:
        if what not in self._told:
            self._told.add(what)
            reason = " ".join(str(error).split())[:200]
            logger.info("gpu_not_read what=%s reason=%s", what, reason)


def total_power_w(readings: Sequence[GpuReading] | None) -> float | None:
    """What all of them draw; None if one does not tell: a part would pass for the whole."""
    if not readings:
        return None
    powers_w = [reading.power_w for reading in readings]
    known_w = [power_w for power_w in powers_w if power_w is not None]
    return sum(known_w) if len(known_w) == len(powers_w) else None
