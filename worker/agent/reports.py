"""Control facts on their way out, in order and repeated until they arrive."""

import logging
import random
import threading
from collections import deque

from controlplane.contract.messages import BreakerTrip, EffectiveReport, ProbeReport
from worker.agent.control import (
    ControlPlane,
    RefusedError,
    SupersededError,
    UnknownWorkerError,
    UnreachableError,
)
from worker.agent.retry import Backoff

# Reports that may wait; when more do, the oldest `effective` goes: a later one says what is so now.
MAX_WAITING = 256

logger = logging.getLogger(__name__)

Report = EffectiveReport | BreakerTrip | ProbeReport


class Reports:
    """A bounded queue of reports and the thread function that empties it."""

    def __init__(self, control_plane: ControlPlane, *, randomness: random.Random) -> None:
        self._control_plane = control_plane
        self._backoff = Backoff(randomness, limit_s=5.0)
        self._waiting: deque[Report] = deque()
        self._lock = threading.Lock()
        self._is_awaited = threading.Event()
        self.is_superseded = False

    def put(self, report: Report) -> None:
        """Queue a report."""
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self._drop_one()
            self._waiting.append(report)
        self._is_awaited.set()

    def wake(self) -> None:
        """Let `run` look at its `stopping` now."""
        self._is_awaited.set()

    def run(self, stopping: threading.Event) -> None:
        """Post reports until `stopping` is set."""
        while not stopping.is_set():
            if not self._has_waiting():
                self._is_awaited.wait(timeout=1.0)
                self._is_awaited.clear()
            elif self.post_one():
                self._backoff.reset()
            else:
                stopping.wait(self._backoff.next_s())

    def post_one(self) -> bool:
        """Post the oldest report; False if it has to be tried again, or if there is none."""
        with self._lock:
            if not self._waiting:
                return False
            report = self._waiting[0]
        try:
            self._post(report)
        except (UnreachableError, UnknownWorkerError) as error:
            # An unknown worker is registered again by the desired-state thread.
            logger.debug("report_postponed reason=%s", error)
            return False
        except SupersededError:
            logger.warning("worker_superseded call=%s", type(report).__name__)
            self.is_superseded = True
        except RefusedError as error:
            logger.error("report_refused report=%s reason=%s", type(report).__name__, error)  # noqa: TRY400 - the sentence tells all
        self._remove(report)
        return True

    def _post(self, report: Report) -> None:
        match report:
            case EffectiveReport():
                self._control_plane.post_effective(report)
            case BreakerTrip():
                self._control_plane.post_trip(report)
            case ProbeReport():
                self._control_plane.post_probe(report)

    def _has_waiting(self) -> bool:
        with self._lock:
            return bool(self._waiting)

    def _remove(self, report: Report) -> None:
        with self._lock:
            # It may have been dropped meanwhile to make room.
            if self._waiting and self._waiting[0] is report:
                self._waiting.popleft()

    def _drop_one(self) -> None:
        for index, report in enumerate(self._waiting):
            if isinstance(report, EffectiveReport):
                del self._waiting[index]
                return
        self._waiting.popleft()
