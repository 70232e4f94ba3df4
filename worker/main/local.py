"""What can be asked on the worker's own machine, without a network and without the worker."""

import os
from dataclasses import dataclass
from pathlib import Path

from worker.agent import breakglass, laststate, spool
from worker.main import run


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalStatus:
    """A worker as its folder tells it."""

    worker: str  # empty if none ever ran here
    is_running: bool
    address: str
    incarnation: str
    is_break_glass: bool  # the file or the variable, as this shell sees it
    generation: int
    proven_flags: dict[str, str]
    tripped_generation: int
    lapsed_generation: int
    num_undelivered_records: int


def status(state_dir: Path) -> LocalStatus:
    """How the worker of `state_dir` stands."""
    worker = run.worker_file(state_dir) or {}
    stored = laststate.load(state_dir)
    return LocalStatus(
        worker=worker.get("worker", ""),
        is_running=bool(worker) and _is_alive(worker["pid"]),
        address=worker.get("address", ""),
        incarnation=worker.get("incarnation", ""),
        is_break_glass=breakglass.is_broken(state_dir, environment=os.environ),
        generation=stored.generation,
        proven_flags=stored.flags,
        tripped_generation=stored.tripped_generation,
        lapsed_generation=stored.lapsed_generation,
        num_undelivered_records=spool.num_undelivered(state_dir),
    )


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # it is there, and another user's
    return True
