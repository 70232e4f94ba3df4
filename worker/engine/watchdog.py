"""Who hangs: a judgement on the progress board, without asking anyone. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from worker.parallel.board import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """The process that holds the others up."""

    index: int
    silent_s: float
    progress: Progress
    is_stopped: bool  # the kernel says so


def found(
    lines: Sequence[Progress], *, now_ns: int, limit_s: float, stopped: Mapping[int, bool]
) -> Hang | None:
    """The process that lags most, if any has shown no life for `limit_s`.

    All ranks fall silent soon after one hangs, because they wait for it in a collective. The
    lagging one is stopped, or has entered the fewest collectives.
    """
    silent = [index for index, line in enumerate(lines) if now_ns - line.beat_at_ns > limit_s * 1e9]
    if not silent:
        return None
    index = min(
        silent, key=lambda i: (not stopped.get(i, False), lines[i].num_collectives, lines[i].step)
    )
    return Hang(
        index=index,
        silent_s=(now_ns - lines[index].beat_at_ns) / 1e9,
        progress=lines[index],
        is_stopped=stopped.get(index, False),
    )


def is_stopped(pid: int) -> bool:
    """True if the kernel holds the process in a stop (SIGSTOP, a debugger)."""
    return _state(pid) in {"T", "t"}


def is_gone(pid: int) -> bool:
    """True if the process has ended, waited for or not."""
    return _state(pid) in {"", "Z", "X", "x"}


def _state(pid: int) -> str:
    """The kernel's letter for the state of the process; empty if there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[0]
