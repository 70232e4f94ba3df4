"""Ties the life of a process to that of its parent. No torch."""

import ctypes
import signal

_PR_SET_PDEATHSIG = 1


def die_with_parent(sent: signal.Signals) -> None:
    """Ask the kernel to send `sent` to this process when its parent has died.

    Raises: OSError if the kernel does not know the request.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(sent), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
