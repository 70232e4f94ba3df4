"""One child process with everything it forks: started on a leash, ended as a group.

The child leads a session of its own, so Ctrl-C at the terminal reaches its starter alone, who then
ends children in the right order; and whatever it forks is ended with it.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

_LEASH: Final = Path(__file__).with_name("leash.py")
# A worker ends its session and its ranks within this; then it is killed.
TERM_GRACE_S: Final = 5.0


class Child:
    """A running program and its process group.

    Start it from a thread that lives as long as the child may: the leash is to the thread.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        stdout: int | None = None,
    ) -> None:
        """Start `argv`; its output is appended to `log`, stdout elsewhere if that is given."""
        leash = (sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()))
        with log.open("ab") as sink:
            self._process = subprocess.Popen(  # noqa: S603 - argv is ours, no shell
                [*leash, *argv],
                stdin=subprocess.DEVNULL,
                stdout=sink if stdout is None else stdout,
                stderr=sink,
                env=None if environment is None else {**os.environ, **environment},
                start_new_session=True,
                text=True,
            )
        self.log = log

    @property
    def pid(self) -> int:
        """Of the program; of its process group too."""
        return self._process.pid

    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs. Reaps it."""
        return self._process.poll()

    def terminate(self) -> None:
        """Ask the program to end; its forks are its own business until `kill`."""
        if self.exit_code() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End the program and everything it forked, now."""
        # No such group: all of it has ended, nothing is left to kill.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self, *, grace_s: float = TERM_GRACE_S) -> int:
        """Ask, wait, then kill the whole group. Returns: the exit code."""
        self.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=grace_s)
        self.kill()
        return self._process.returncode

    def output(self, *, timeout_s: float) -> str:
        """What it wrote to stdout, after it has ended; needs `stdout=PIPE`.

        Raises: TimeoutError: it still runs after `timeout_s`.
        """
        try:
            return self._process.communicate(timeout=timeout_s)[0]
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"process {self.pid} still runs after {timeout_s} s") from error

    def last_lines(self, number: int = 12) -> str:
        """The end of its log, for a person who must find out why it died."""
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-number:])
        except OSError:
            return "(no log)"


def stop_all(children: Sequence[Child], *, grace_s: float = TERM_GRACE_S) -> None:
    """End all of them in one grace time, not one after the other."""
    for child in children:
        child.terminate()
    for child in children:
        child.stop(grace_s=grace_s)
