"""Doorbells between two ranks: one wakes the other. No torch.

A doorbell is an event file, not a socket: the kernel wakes the reader of a local socket on the
writer's core, because it expects the writer to sleep, and so puts both ranks on one core (measured
beside other work on two cores: 2.2 ms in the median against 0.5). It tells nothing of a peer's
death; the supervisor, which hears of it at once, kills the group, and a timeout does otherwise.
"""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bell:
    """Two event files between this rank and one other."""

    rung: int  # by this rank
    heard: int  # by this rank


def pair() -> tuple[Bell, Bell]:
    """The two sides of a pair of ranks; as semaphores, for a peer may be one call ahead."""
    first, second = (os.eventfd(0, os.EFD_SEMAPHORE | os.EFD_CLOEXEC) for _ in range(2))
    return Bell(rung=first, heard=second), Bell(rung=second, heard=first)
