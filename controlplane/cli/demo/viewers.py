"""Synthetic viewers as processes: each watches one worker, session after session.

They are separate processes because the control plane imports nothing of the worker; what they saw
comes back as one JSON line a session.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controlplane.cli.demo.story import ViewerSession
from controlplane.cluster.processes import Child, stop_all
from controlplane.ports import Clock

# Long enough to be rated, short enough that a canary of half a minute sees several end.
SESSION_S: Final = 5.0
# More than any demo can last; the viewers are ended with it.
NUM_SESSIONS: Final = 10_000


class Viewers:
    """The viewers of all workers, and every session that has ended so far."""

    def __init__(self, folder: Path, *, clock: Clock) -> None:
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._read_to: dict[str, int] = {}
        self.sessions: list[ViewerSession] = []

    def start(self, worker: str, *, url: str, lengths: Sequence[int], seed: int) -> int:
        """Watch `worker` from now on. Returns: the process id, which leads its group."""
        argv = [
            *(sys.executable, "-m", "worker.viewer", "--url", url, "--live", "--json-lines"),
            *("--sessions", str(NUM_SESSIONS), "--seconds", str(SESSION_S), "--seed", str(seed)),
            *("--lengths", ",".join(str(length) for length in lengths)),
        ]
        sink = self._out(worker).open("ab")
        try:
            child = Child(argv, log=self._folder / f"{worker}.err", stdout=sink.fileno())
        finally:
            sink.close()
        self._children[worker] = child
        return child.pid

    def stop_watching(self, worker: str) -> None:
        """End the viewer of `worker`; `start` begins another."""
        stop_all([self._children.pop(worker)])

    def collect(self) -> list[ViewerSession]:
        """Sessions that have ended since the last call."""
        fresh = [session for worker in self._children for session in self._fresh(worker)]
        self.sessions.extend(fresh)
        return fresh

    def gone(self) -> list[str]:
        """Workers whose viewer has ended, which it never does by itself."""
        return [name for name, child in self._children.items() if child.exit_code() is not None]

    def last_lines(self, worker: str) -> str:
        """The end of what the viewer complained about."""
        return self._children[worker].last_lines()

    def stop(self) -> None:
        """End every viewer."""
        stop_all(list(self._children.values()))

    def _fresh(self, worker: str) -> list[ViewerSession]:
        with self._out(worker).open("rb") as file:
            file.seek(self._read_to.get(worker, 0))
            content = file.read()
        # The last line may be half written: it is read with the next call.
        whole = content[: content.rfind(b"\n") + 1]
        self._read_to[worker] = self._read_to.get(worker, 0) + len(whole)
        return [self._session(worker, line) for line in whole.splitlines() if line.strip()]

    def _session(self, worker: str, line: bytes) -> ViewerSession:
        told = json.loads(line)
        return ViewerSession(
            worker=worker,
            outcome=told["outcome"],
            fps=told["fps"],
            streamed_s=told["streamed_s"],
            first_forward_length=told["first_forward_length"],
            longest_gap_ms=told["longest_gap_ms"],
            ended_at=self._clock.now(),
        )

    def _out(self, worker: str) -> Path:
        return self._folder / f"{worker}.jsonl"
