"""Cleans up after a starter that was killed outright and could not do it itself.

Run as a script with a folder to remove: `python janitor.py FOLDER`. Each line on stdin is the id of
a process group to end; `done` ends the janitor without doing anything. End of file without it means
that the starter died: the groups are ended, then the folder is removed.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

GRACE_S: Final = 3.0
DONE: Final = "done"


class Janitor:
    """The starter's handle on its janitor."""

    def __init__(self, folder: Path) -> None:
        """Start a janitor that removes `folder` if this process dies before `dismiss`."""
        self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and file, no shell
            [sys.executable, "-I", "-S", __file__, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        )

    def watch(self, group: int) -> None:
        """End process group `group`, too, if this process dies."""
        self._write(str(group))

    def dismiss(self) -> None:
        """All is cleaned up; the janitor goes home."""
        self._write(DONE)
        assert self._process.stdin is not None, "opened as a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None, "opened as a pipe"
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


def main() -> None:
    """Wait for the starter's word or its death."""
    groups: set[int] = set()
    for line in sys.stdin:
        if line.strip() == DONE:
            return
        groups.add(int(line))
    for kind in (signal.SIGTERM, signal.SIGKILL):
        _signal_all(groups, kind)
        if kind is signal.SIGTERM:
            threading.Event().wait(GRACE_S)
    shutil.rmtree(sys.argv[1], ignore_errors=True)


def _signal_all(groups: set[int], kind: signal.Signals) -> None:
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, kind)


if __name__ == "__main__":
    main()
