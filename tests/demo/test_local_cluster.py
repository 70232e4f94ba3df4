"""Worker processes on this machine: kept running, and never left behind."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from controlplane.cluster import local
from controlplane.cluster.janitor import Janitor
from controlplane.cluster.local import LocalCluster, WorkerProgram
from controlplane.cluster.processes import Child

SLEEPER = (sys.executable, "-S", "-c", "import time; time.sleep(60)")
# Forks a child that ignores SIGTERM, tells its id, and stays.
_FORKING = """
import os, signal, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print(os.getpid(), flush=True)
time.sleep(60)
"""
FORKER = (sys.executable, "-S", "-c", _FORKING)
_IGNORING = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(1, flush=True)
time.sleep(60)
"""
DEAF = (sys.executable, "-S", "-c", _IGNORING)


@dataclass
class FakeClock:
    """Time that passes when a test says so."""

    now_s: float = 0.0

    def now(self) -> datetime:
        return datetime(2026, 11, 30, tzinfo=UTC) + timedelta(seconds=self.now_s)

    def monotonic(self) -> float:
        return self.now_s

    def advance(self, *, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def cluster(clock: FakeClock) -> Iterator[LocalCluster]:
    made = LocalCluster(clock=clock)
    yield made
    made.stop()


def program(tmp_path: Path, argv: tuple[str, ...] = SLEEPER) -> WorkerProgram:
    return WorkerProgram(fleet="f", worker="a", argv=argv, log=tmp_path / "a.log")


def eventually(condition: Callable[[], bool], *, within_s: float = 10.0) -> None:
    for _ in range(int(within_s / 0.05)):
        if condition():
            return
        threading.Event().wait(0.05)
    pytest.fail(f"not within {within_s} s")


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def pid_of(cluster: LocalCluster) -> int:
    pid = cluster.pid(fleet="f", worker="a")
    assert pid is not None
    return pid


def is_running(cluster: LocalCluster) -> bool:
    return cluster.instances()[0].is_running


def test_a_worker_that_was_killed_is_started_again_after_a_delay(
    cluster: LocalCluster, clock: FakeClock, tmp_path: Path
) -> None:
    """A crash costs one session, not the worker."""
    cluster.add(program(tmp_path))
    os.kill(pid_of(cluster), signal.SIGKILL)
    eventually(lambda: not is_running(cluster))
    assert "signal 9" in cluster.tend()[0].text
    assert cluster.tend() == ()
    clock.advance(seconds=local.FIRST_DELAY_S)
    assert [happened.text for happened in cluster.tend()] == ["started again"]
    assert is_running(cluster)
    assert cluster.instances()[0].num_restarts == 1


def test_the_delay_doubles_up_to_a_bound() -> None:
    """A worker that cannot start must not eat the machine."""
    assert [local.delay_s(number) for number in (1, 2, 3, 4)] == [0.5, 1.0, 2.0, 4.0]
    assert local.delay_s(30) == local.MAX_DELAY_S


def test_a_worker_that_crashes_all_the_time_is_given_up(
    cluster: LocalCluster, clock: FakeClock, tmp_path: Path
) -> None:
    """After that it needs a person, who is told to read its log."""
    cluster.add(program(tmp_path, (sys.executable, "-S", "-c", "raise SystemExit(3)")))
    texts: list[str] = []
    for _ in range(local.MAX_CRASHES_IN_A_ROW + 1):
        eventually(lambda: not is_running(cluster))
        texts += [happened.text for happened in cluster.tend()]
        clock.advance(seconds=local.MAX_DELAY_S)
        texts += [happened.text for happened in cluster.tend()]
    assert texts[-1] == "ended with 3; given up, see its log"


def test_a_restart_asked_for_is_not_a_crash(cluster: LocalCluster, tmp_path: Path) -> None:
    """It starts at once, and asking twice starts it once."""
    cluster.add(program(tmp_path))
    before = pid_of(cluster)
    for _ in range(2):
        cluster.restart(fleet="f", worker="a", reason="memory is to be given back")
    eventually(lambda: not is_running(cluster))
    texts = [happened.text for happened in (*cluster.tend(), *cluster.tend())]
    assert texts == ["memory is to be given back", "started again"]
    assert pid_of(cluster) != before


def test_a_worker_that_does_not_end_when_asked_is_killed(
    cluster: LocalCluster, clock: FakeClock, tmp_path: Path
) -> None:
    """A hung worker cannot hold up its own replacement."""
    cluster.add(program(tmp_path, DEAF))
    eventually(lambda: (tmp_path / "a.log").read_text() != "")
    cluster.restart(fleet="f", worker="a", reason="hung")
    cluster.tend()
    assert is_running(cluster)
    clock.advance(seconds=10)
    cluster.tend()
    assert not is_running(cluster)


def test_stopping_ends_what_the_worker_forked(tmp_path: Path) -> None:
    """Ranks and decoders belong to their worker's group and go with it."""
    child = Child(FORKER, log=tmp_path / "log")
    eventually(lambda: child.log.read_text().strip() != "")
    forked = int(child.log.read_text())
    child.stop(grace_s=1)
    eventually(lambda: not is_alive(forked))


def test_a_child_dies_with_a_starter_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL gives the starter no chance to clean up: the kernel does."""
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert is_alive(pid)
        starter.kill()
    eventually(lambda: not is_alive(pid))


def test_the_janitor_cleans_up_after_a_starter_that_is_killed(tmp_path: Path) -> None:
    """Processes that left the leash, and the folder, go too."""
    folder = tmp_path / "demo"
    folder.mkdir()
    starter = subprocess.Popen(
        [sys.executable, "-c", _HOUSEHOLD, str(folder)], stdout=subprocess.PIPE, text=True
    )
    with starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        starter.kill()
    eventually(lambda: not is_alive(pid) and not folder.exists())


def test_a_janitor_that_was_dismissed_touches_nothing(tmp_path: Path) -> None:
    """After an orderly end the folder is the owner's business."""
    folder = tmp_path / "demo"
    folder.mkdir()
    Janitor(folder).dismiss()
    assert folder.exists()


_STARTER = f"""
import pathlib, sys, time
from controlplane.cluster.processes import Child
child = Child({SLEEPER!r}, log=pathlib.Path(sys.argv[1]))
print(child.pid, flush=True)
time.sleep(60)
"""
_HOUSEHOLD = f"""
import pathlib, subprocess, sys, time
from controlplane.cluster.janitor import Janitor
janitor = Janitor(pathlib.Path(sys.argv[1]))
sleeper = subprocess.Popen({SLEEPER!r}, start_new_session=True)
janitor.watch(sleeper.pid)
print(sleeper.pid, flush=True)
time.sleep(60)
"""
