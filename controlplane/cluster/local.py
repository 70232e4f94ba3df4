"""Worker processes on this machine: started, restarted after a crash, ended with their starter.

For the embedded mode and the demo. The owner calls `tend` a few times a second, always from the
thread that called `add`; all else may be called from anywhere.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from controlplane.cluster.processes import TERM_GRACE_S, Child, stop_all
from controlplane.ports import Clock, Instance

FIRST_DELAY_S: Final = 0.5
MAX_DELAY_S: Final = 30.0
# A worker that ran this long was well: the next crash starts from the first delay again.
HEALTHY_AFTER_S: Final = 60.0
# With the delays above, three minutes of trying: what crashes that often needs a person.
MAX_CRASHES_IN_A_ROW: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProgram:
    """How one worker is started."""

    fleet: str
    worker: str
    argv: tuple[str, ...]
    log: Path
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Something a person may want to know of a worker's processes."""

    worker: str
    text: str


@dataclass(slots=True, kw_only=True)
class _Slot:
    """One worker over its lives. Touched under the cluster's lock only."""

    program: WorkerProgram
    child: Child | None = None
    started_at: float = 0.0
    start_at: float | None = None  # None: no start is due
    kill_at: float | None = None  # set when it was asked to end
    num_restarts: int = 0
    num_crashes_in_a_row: int = 0
    restart_reasons: list[str] = field(default_factory=list)


def delay_s(num_crashes_in_a_row: int) -> float:
    """Seconds to wait before the next start; doubles, up to a bound."""
    return min(MAX_DELAY_S, FIRST_DELAY_S * 2.0 ** max(0, num_crashes_in_a_row - 1))


class LocalCluster:
    """`ports.Cluster` over child processes of this one."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slots: dict[tuple[str, str], _Slot] = {}

    def add(self, program: WorkerProgram) -> None:
        """Start a worker and keep it running. Raises: ValueError: it is here already."""
        key = (program.fleet, program.worker)
        with self._lock:
            if key in self._slots:
                raise ValueError(f"worker {program.worker} of {program.fleet} is here already")
            self._slots[key] = slot = _Slot(program=program)
            self._start(slot)

    def instances(self) -> Sequence[Instance]:
        """Every worker that was added, as its processes stand."""
        with self._lock:
            return tuple(
                Instance(
                    fleet=slot.program.fleet,
                    worker=slot.program.worker,
                    is_running=slot.child is not None and slot.child.exit_code() is None,
                    num_restarts=slot.num_restarts,
                )
                for slot in self._slots.values()
            )

    def restart(self, *, fleet: str, worker: str, reason: str) -> None:
        """Ask the worker to end; `tend` kills it if it does not, and starts it anew.

        Harmless while it is being replaced.
        """
        with self._lock:
            slot = self._slots.get((fleet, worker))
            if slot is None or slot.child is None or slot.kill_at is not None:
                return
            slot.restart_reasons.append(reason)
            slot.kill_at = self._clock.monotonic() + TERM_GRACE_S
            slot.child.terminate()

    def tend(self) -> tuple[Happened, ...]:
        """Reap what has ended, kill what should have, start what is due. Returns: what happened."""
        with self._lock:
            return tuple(
                happened
                for slot in self._slots.values()
                for happened in (self._reaped(slot), self._started(slot))
                if happened is not None
            )

    def pid(self, *, fleet: str, worker: str) -> int | None:
        """Process id of the worker, which leads its process group; None while it is down."""
        with self._lock:
            slot = self._slots.get((fleet, worker))
            return slot.child.pid if slot and slot.child else None

    def stop(self) -> None:
        """End every worker and start none again; harmless if they have ended."""
        with self._lock:
            children = [slot.child for slot in self._slots.values() if slot.child]
            self._slots.clear()
        stop_all(children)

    def _start(self, slot: _Slot) -> None:
        program = slot.program
        slot.child = Child(program.argv, log=program.log, environment=dict(program.environment))
        slot.started_at = self._clock.monotonic()
        slot.start_at = slot.kill_at = None

    def _started(self, slot: _Slot) -> Happened | None:
        if slot.start_at is None or self._clock.monotonic() < slot.start_at:
            return None
        self._start(slot)
        slot.num_restarts += 1
        return Happened(worker=slot.program.worker, text="started again")

    def _reaped(self, slot: _Slot) -> Happened | None:
        """Notice the end of the child and decide when the next one starts."""
        if slot.child is None:
            return None
        now = self._clock.monotonic()
        exit_code = slot.child.exit_code()
        if exit_code is None:
            if slot.kill_at is not None and now >= slot.kill_at:
                slot.child.kill()
            return None
        slot.child.kill()  # what it forked and did not take along
        slot.child = None
        if slot.restart_reasons:
            slot.start_at = now
            return Happened(worker=slot.program.worker, text=slot.restart_reasons.pop())
        return self._crashed(slot, exit_code=exit_code, now=now)

    def _crashed(self, slot: _Slot, *, exit_code: int, now: float) -> Happened:
        was_well = now - slot.started_at >= HEALTHY_AFTER_S
        slot.num_crashes_in_a_row = 1 if was_well else slot.num_crashes_in_a_row + 1
        how = f"ended by signal {-exit_code}" if exit_code < 0 else f"ended with {exit_code}"
        if slot.num_crashes_in_a_row > MAX_CRASHES_IN_A_ROW:
            return Happened(worker=slot.program.worker, text=f"{how}; given up, see its log")
        wait_s = delay_s(slot.num_crashes_in_a_row)
        slot.start_at = now + wait_s
        return Happened(worker=slot.program.worker, text=f"{how}; starts again in {wait_s:g} s")
