"""Keeps asking the control plane what it wants: registers, then holds a call open, for ever."""

import logging
import random
import threading
from collections.abc import Callable
from typing import Protocol

from controlplane.contract.messages import DesiredState, Registration
from worker.agent.control import (
    ControlPlane,
    RefusedError,
    SupersededError,
    UnknownWorkerError,
    UnreachableError,
)
from worker.agent.retry import Backoff

# A control plane that answers at once without news must not be asked in a tight loop.
LEAST_INTERVAL_S = 0.2

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Who hears what the control plane wants."""

    def registration(self) -> Registration:
        """How to register now."""
        ...

    def on_desired(self, state: DesiredState) -> int:
        """Take an answer; returns the generation to ask after."""
        ...

    def on_superseded(self) -> None:
        """Another life of this worker has registered."""
        ...


class DesiredWatch:
    """The loop of the desired-state thread."""

    def __init__(
        self,
        control_plane: ControlPlane,
        *,
        listener: Listener,
        clock: Callable[[], float],
        randomness: random.Random,
    ) -> None:
        self._control_plane = control_plane
        self._listener = listener
        self._clock = clock
        # Short at the longest: after an outage nobody wants to wait for workers to notice.
        self._backoff = Backoff(randomness, limit_s=5.0)
        self._after: int | None = None  # None: not registered
        self._has_told_failure = False

    def run(self, stopping: threading.Event) -> None:
        """Ask until `stopping` is set or another life of this worker has registered."""
        while not stopping.is_set():
            began_at = self._clock()
            before = self._after
            try:
                self._after = self._listener.on_desired(self._ask())
            except SupersededError:
                logger.warning("worker_superseded call=desired")
                self._listener.on_superseded()
                return
            except (UnreachableError, RefusedError, UnknownWorkerError) as error:
                self._note_failure(error)
                stopping.wait(self._backoff.next_s())
                continue
            self._note_success()
            if self._after == before:
                took_s = self._clock() - began_at
                stopping.wait(max(0.0, LEAST_INTERVAL_S - took_s))

    def _ask(self) -> DesiredState:
        registration = self._listener.registration()
        if self._after is None:
            state = self._control_plane.register(registration)
            logger.info("worker_registered generation=%d", state.generation)
            return state
        return self._control_plane.desired(after=self._after, incarnation=registration.incarnation)

    def _note_failure(self, error: Exception) -> None:
        if isinstance(error, UnknownWorkerError):
            self._after = None
        # Once for each outage, not once for each attempt.
        if not self._has_told_failure:
            logger.warning("control_plane_missed reason=%s", error)
        self._has_told_failure = True

    def _note_success(self) -> None:
        self._has_told_failure = False
        self._backoff.reset()
