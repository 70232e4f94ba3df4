"""The whole demo with real processes: it ends well, and it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "controlplane.cli.main", "demo")
PLAYED_WITHIN_S = 240
UP_WITHIN_S = 60
GONE_WITHIN_S = 20
NUM_CHILDREN_WHEN_UP = 6  # the control plane, three workers and what they fork

pytestmark = [pytest.mark.slow, pytest.mark.timeout(PLAYED_WITHIN_S + 60)]


def descendants(root: int) -> set[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int(
                    (entry / "stat").read_text().rpartition(")")[2].split()[1]
                )
            except OSError:
                continue
    found = {root}
    for _ in range(6):  # deeper than any of ours
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found - {root}


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def eventually(condition: Callable[[], bool], *, within_s: float, what: str) -> None:
    for _ in range(int(within_s / 0.2)):
        if condition():
            return
        threading.Event().wait(0.2)
    pytest.fail(f"not within {within_s} s: {what}")


def start(folder: Path) -> subprocess.Popen[str]:
    with (folder / "demo.log").open("w") as log:
        return subprocess.Popen(
            DEMO,
            env={**os.environ, "TMPDIR": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
            text=True,
        )


def test_the_demo_shows_the_main_job_and_ends_with_zero(tmp_path: Path) -> None:
    """What the README promises, checked scene by scene."""
    ended = subprocess.run(
        [*DEMO, "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=PLAYED_WITHIN_S,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    summary = json.loads(ended.stdout)
    assert [scene["outcome"] for scene in summary["scenes"]] == [
        "holds",
        "rolled_back",
        "rolled_back",
        "promoted",
        "rolled_back",
        "rolled_back",
        "rolled_back",
    ]
    preflight, coverage = summary["scenes"][1:3]
    assert "keeps 16.0 MiB for first-forward length 8" in preflight["reason"]
    assert "1 of 8 buckets of first-forward lengths met" in coverage["reason"]
    assert summary["lowest_healthy_fps"] >= 24.0
    assert summary["peak_memory_bytes"] < 3 * 2**30
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_the_demo_is_ended(tmp_path: Path, kind: signal.Signals) -> None:
    """No process, no port, no folder: not even after SIGKILL, which allows no clean-up."""
    demo = start(tmp_path)
    with demo:
        eventually(
            lambda: len(descendants(demo.pid)) >= NUM_CHILDREN_WHEN_UP,
            within_s=UP_WITHIN_S,
            what="the workers are up",
        )
        children = descendants(demo.pid)
        demo.send_signal(kind)
        demo.wait(timeout=GONE_WITHIN_S)
    eventually(
        lambda: not any(is_alive(pid) for pid in children),
        within_s=GONE_WITHIN_S,
        what="every process has ended",
    )
    eventually(
        lambda: [path.name for path in tmp_path.iterdir()] == ["demo.log"],
        within_s=GONE_WITHIN_S,
        what="the folder is removed",
    )
