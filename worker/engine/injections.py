"""What a rank does wrong because it was told to: for tests and drills only. No torch."""

import os
import signal
import time
from collections.abc import Sequence
from typing import NoReturn

from worker.config import InjectedFault, Injection


class Injections:
    """The faults of one rank in one launch."""

    def __init__(self, faults: Sequence[Injection], *, rank: int) -> None:
        self._faults = [fault for fault in faults if fault.rank == rank]

    def is_due(self, kind: InjectedFault, *, session_step: int | None = None) -> bool:
        """True if this rank was told to do `kind` wrong now."""
        return any(
            fault.kind is kind and session_step in (None, fault.session_step)
            for fault in self._faults
        )

    def misbehave(self, session_step: int) -> None:
        """Raise, die or hang, if that is due in this step. Raises: RuntimeError."""
        if self.is_due(InjectedFault.RAISE, session_step=session_step):
            raise RuntimeError("told to raise by the configuration")
        if self.is_due(InjectedFault.DIE, session_step=session_step):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.is_due(InjectedFault.HANG, session_step=session_step):
            _hang()


def _hang() -> NoReturn:
    while True:
        time.sleep(3600)
