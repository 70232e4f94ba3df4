"""Memory and processor time of a process and all its descendants, read from /proc.

Memory is the proportional set size: pages that forked processes share count once, as they are there
once. Where there is no /proc, everything is zero, and is reported as not measured.
"""

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
# Fields of /proc/PID/stat after the name in brackets; numbers as in proc(5), which counts from 1.
_PARENT: Final = 4 - 3
_USER_TICKS: Final = 14 - 3
_SYSTEM_TICKS: Final = 15 - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a tree of processes takes."""

    memory_bytes: int
    cpu_s: float  # of the processes that are alive
    num_processes: int


def of(root: int) -> Footprint:
    """The footprint of process `root` and everything below it."""
    stats = dict(_stats())
    children: dict[int, list[int]] = defaultdict(list)
    for pid, fields in stats.items():
        children[int(fields[_PARENT])].append(pid)
    tree = [pid for pid in _below(root, children) if pid in stats]
    ticks = sum(int(stats[pid][_USER_TICKS]) + int(stats[pid][_SYSTEM_TICKS]) for pid in tree)
    return Footprint(
        memory_bytes=sum(_proportional_bytes(pid) for pid in tree),
        cpu_s=ticks / os.sysconf("SC_CLK_TCK"),
        num_processes=len(tree),
    )


def _below(root: int, children: Mapping[int, list[int]]) -> Iterator[int]:
    """`root` and its descendants; each process has one parent, so this ends."""
    yield root
    for child in children.get(root, ()):
        yield from _below(child, children)


def _stats() -> Iterator[tuple[int, list[str]]]:
    if not PROC.is_dir():
        return
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            text = _read(entry / "stat")
            if text:
                # The name may hold spaces and brackets: everything counts from the last bracket.
                yield int(entry.name), text.rpartition(")")[2].split()


def _proportional_bytes(pid: int) -> int:
    for line in _read(PROC / str(pid) / "smaps_rollup").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: Path) -> str:
    """The text, or nothing: processes end while one looks."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
