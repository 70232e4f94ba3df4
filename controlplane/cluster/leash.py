"""Ties a program to the life of its starter, then becomes that program.

Run as a script: `python leash.py PARENT_PID PROGRAM ARGUMENT...`. On Linux the kernel sends the
program SIGTERM when the thread that started it ends, however it ends; elsewhere nothing is tied.
The tie survives exec, so no code of ours runs beside the program; and there is no hook between fork
and exec, which is unsafe in a process with threads.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Tie and exec; returns only by exiting when the parent is gone already."""
    parent, argv = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    # The parent may have died before the tie was made.
    if os.getppid() != parent:
        sys.exit(0)
    os.execvp(argv[0], argv)  # noqa: S606 - the whole purpose; no shell is involved


if __name__ == "__main__":
    main()
