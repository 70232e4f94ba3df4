"""A worker whose disk fills up and has room again; prints how many sessions began and ended.

The bound is the kernel's: RLIMIT_FSIZE, with SIGXFSZ ignored so that writing fails as it would on a
full disk. Sessions that could not be ended are left to the next life.
"""

import resource
import signal
import sys
from pathlib import Path

from tests.worker.agent.build import agent, desired
from worker.agent.agent import Agent

LIMIT_BYTES = 64 * 1024
NUM_AFTERWARDS = 5


def main() -> None:
    """Serve until the disk is full, then a little longer with room."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    num_started = num_ended = 0
    with agent(Path(sys.argv[1])) as worker:
        worker.on_desired(desired(generation=1, flags={"fused_allreduce": "nccl"}))
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))
        is_full = False
        while not is_full:  # bounded by the limit
            is_started, is_ended = _serve(worker)
            num_started += is_started
            num_ended += is_ended
            is_full = not (is_started and is_ended)
        for _ in range(3):
            assert _serve(worker)[1] is False, "a session that could not be recorded"
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        for _ in range(NUM_AFTERWARDS):
            is_started, is_ended = _serve(worker)
            assert is_started
            assert is_ended
            num_started += 1
            num_ended += 1
    print(num_started, num_ended)  # noqa: T201 - what this program is for


def _serve(worker: Agent) -> tuple[bool, bool]:
    """One session; whether its start and its end were recorded."""
    try:
        session = worker.open_session(first_forward_length=8)
    except OSError:
        return False, False
    try:
        with session:
            session.deliver(num_frames=4)
    except OSError:
        return True, False
    return True, True


if __name__ == "__main__":
    main()
