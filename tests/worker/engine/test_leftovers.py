"""What is left when a worker has ended: nothing."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from worker import config
from worker.engine.engine import LocalEngine

_SUPERVISOR = """
import asyncio, json, sys
import pytest

from worker import config
from worker.engine.engine import LocalEngine

async def main():
    engine = LocalEngine(config.tiny())
    await engine.start({"fused_allreduce": "fused_all"}, generation=1)
    print(json.dumps(list(engine.pids().values())), flush=True)
    async for _ in engine.chunks("endless", first_forward_length=5, seed=1):
        await asyncio.sleep(0.01)

asyncio.run(main())
"""


def _lives(pid: int) -> bool:
    """False for a process that has ended, reaped by its new parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}
    except OSError:
        return False


def _open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _shared() -> set[str]:
    """Named shared memory of torch and of ours; other workers' files are not counted."""
    shm = Path("/dev/shm")  # noqa: S108 - looked at only
    return {path.name for path in shm.iterdir() if path.name.startswith(("torch", "gloo"))}


def _exists(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def test_stop_leaves_no_process_no_file_and_no_open_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a server of its own, as a worker has; twice, for a leak shows at the second time."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    names = _shared()
    seen = []

    async def life() -> None:
        engine = LocalEngine(config.tiny())
        await engine.start({"fused_allreduce": "fused_steady"}, generation=1)
        pids = list(engine.pids().values())
        await engine.restart({}, generation=2)
        pids += engine.pids().values()
        await engine.stop()
        await engine.stop()
        assert not any(_exists(pid) for pid in pids)
        assert engine.pids() == {}
        seen.append(_open_files())

    asyncio.run(life())
    asyncio.run(life())
    assert seen[0] == seen[1]
    assert _shared() == names
    assert list(tmp_path.iterdir()) == []


def test_a_supervisor_that_is_killed_leaves_no_children() -> None:
    """SIGKILL gives it no chance to clean up: the kernel and the closed sockets do."""
    with subprocess.Popen(
        [sys.executable, "-c", _SUPERVISOR], stdout=subprocess.PIPE
    ) as supervisor:
        assert supervisor.stdout
        pids = [int(pid) for pid in supervisor.stdout.readline().strip(b"[]\n").split(b",")]
        assert len(pids) == 4
        assert all(_lives(pid) for pid in pids)
        supervisor.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 10
    while any(_lives(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_lives(pid) for pid in pids)


def test_a_killed_fork_server_takes_its_group_along_and_the_next_start_makes_a_new_one() -> None:
    """The last thing that can go wrong on the way to a restart."""

    async def life() -> None:
        engine = LocalEngine(config.tiny())
        await engine.start({}, generation=1)
        pids = dict(engine.pids())
        os.kill(pids["forkserver"], signal.SIGKILL)
        async with asyncio.timeout(20):
            fault = await anext(engine.events())
            await engine.restart({}, generation=2)
        assert "ended without a word" in str(fault)
        assert not any(_lives(pid) for pid in pids.values())
        assert set(engine.pids()) == set(pids)
        await engine.stop()

    asyncio.run(life())
