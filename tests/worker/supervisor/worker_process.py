"""A real worker in real processes, for the tests that need one; nothing of it outlives the test."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READY_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 20.0


class WorkerProcess:
    """A running worker, by its folder."""

    def __init__(self, process: "subprocess.Popen[bytes]", state_dir: Path) -> None:
        self._process = process
        self._state_dir = state_dir

    @property
    def url(self) -> str:
        return str(self.file()["address"])

    def file(self) -> dict[str, Any]:
        path = self._state_dir / "worker.json"
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"pid": 0}
        return content

    def descendants(self) -> list[int]:
        return descendants(self._process.pid)

    def kill_rank(self) -> None:
        """SIGKILL for one rank: the first child of the fork server."""
        (fork_server,) = children(self._process.pid)
        os.kill(children(fork_server)[0], signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL for the supervisor alone; its children have to notice by themselves."""
        self._process.kill()
        self._process.wait(timeout=STOP_TIMEOUT_S)

    def terminate(self) -> int:
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=STOP_TIMEOUT_S)

    def wait_until_listening(self) -> None:
        limit = time.monotonic() + READY_TIMEOUT_S
        while self.file()["pid"] != self._process.pid:
            assert self._process.poll() is None, "the worker ended before it listened"
            assert time.monotonic() < limit, "the worker does not listen"
            time.sleep(0.05)


def children(pid: int) -> list[int]:
    """Processes whose parent is `pid`, in the order of their birth; none if it has gone."""
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def descendants(pid: int) -> list[int]:
    """Children of `pid` and theirs."""
    return [each for child in children(pid) for each in (child, *descendants(child))]


def alive_after(pids: list[int], *, timeout_s: float) -> list[int]:
    """Those of `pids` that still run when all have ended or the time is over."""
    limit = time.monotonic() + timeout_s
    while (alive := [pid for pid in pids if is_running(pid)]) and time.monotonic() < limit:
        time.sleep(0.05)
    return alive


def is_running(pid: int) -> bool:
    """Whether `pid` runs; a zombie that waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def running_worker(
    state_dir: Path, *, url: str, environment: dict[str, str] | None = None, **settings: Any
) -> Iterator[WorkerProcess]:
    """A worker of the `tiny` preset; killed with all its children if it still runs at the end."""
    state_dir.mkdir(exist_ok=True)
    config = state_dir.parent / f"{state_dir.name}.json"
    fields = {
        "fleet": "demo", "worker": "w1", "preset": "tiny", "url": url,
        "state_dir": str(state_dir), "window_s": 0.5, "flush_s": 2.0, **settings,
    }  # fmt: skip
    config.write_text(json.dumps(fields))
    log = state_dir.parent / f"{state_dir.name}.log"
    with log.open("ab") as log_file:
        process = subprocess.Popen(
            [sys.executable, "-m", "worker.main", "run", "--config", str(config)],
            stdout=log_file,
            stderr=log_file,
            env={**os.environ, **(environment or {})},
        )
    worker = WorkerProcess(process, state_dir)
    family: list[int] = []
    try:
        worker.wait_until_listening()
        yield worker
    finally:
        if process.poll() is None:
            family = worker.descendants()
            worker.terminate()
        alive = alive_after(family, timeout_s=5)
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        assert not alive, "the worker left processes behind"
