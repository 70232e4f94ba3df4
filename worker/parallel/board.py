"""The progress board: one line of shared memory for each process of a group.

A process writes its own line; the supervisor reads all of them without asking, so that a process
that hangs cannot keep its state to itself. No torch.
"""

import mmap
import os
import struct
import time
from dataclasses import dataclass

# Nanoseconds of the machine-wide monotonic clock, collectives entered, engine step.
_LINE = struct.Struct("<QQQ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far one process has come."""

    beat_at_ns: int  # monotonic; when it last showed life
    num_collectives: int  # entered so far
    step: int  # last step begun


def create(num_lines: int) -> int:
    """A file descriptor of a fresh board; it has no name, so nothing is left behind."""
    board = os.memfd_create("steadyframe-board")
    os.ftruncate(board, num_lines * _LINE.size)
    return board


class Line:
    """The line of this process."""

    def __init__(self, board: int, index: int) -> None:
        """Map line `index` of the board with file descriptor `board`."""
        self._memory = mmap.mmap(board, 0)
        self._at = index * _LINE.size
        self._num_collectives = 0
        self._step = 0

    def beat(self) -> None:
        """Show that this process runs."""
        beat_at_ns = time.monotonic_ns()
        _LINE.pack_into(self._memory, self._at, beat_at_ns, self._num_collectives, self._step)

    def enter_collective(self) -> None:
        """Show that this process has come as far as its next collective."""
        self._num_collectives += 1
        self.beat()

    def begin_step(self, step: int) -> None:
        """Show that this process has begun engine step `step`."""
        self._step = step
        self.beat()


class Board:
    """All lines, for the supervisor."""

    def __init__(self, board: int, *, num_lines: int) -> None:
        """Map the board; the file descriptor may be closed afterwards."""
        self._memory = mmap.mmap(board, 0)
        self._num_lines = num_lines

    def lines(self) -> tuple[Progress, ...]:
        """Progress of every process, in the order of their indexes."""
        return tuple(
            Progress(beat_at_ns=beat_at_ns, num_collectives=num_collectives, step=step)
            for beat_at_ns, num_collectives, step in (
                _LINE.unpack_from(self._memory, index * _LINE.size)
                for index in range(self._num_lines)
            )
        )

    def close(self) -> None:
        """Unmap."""
        self._memory.close()
