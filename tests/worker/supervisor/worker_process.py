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

import psutil

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

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def kill_rank(self) -> None:
        """SIGKILL for one rank: the second last child of the fork server."""
        ranks = [child for child in self.children() if child.ppid() != self._process.pid]
        ranks[0].kill()

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
    children: list[psutil.Process] = []
    try:
        worker.wait_until_listening()
        yield worker
    finally:
        if process.poll() is None:
            children = worker.children()
            worker.terminate()
        _gone, alive = psutil.wait_procs(children, timeout=5)
        for child in alive:
            child.kill()
        assert not alive, "the worker left processes behind"
