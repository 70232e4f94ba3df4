"""A whole worker whose weights come from a checkpoint."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from controlplane.contract.messages import DesiredState
from tests.worker import control_plane as planes
from tests.worker.control_plane import ControlPlaneOfTests
from tests.worker.model import folders
from tests.worker.supervisor.worker_process import WorkerProcess, alive_after, running_worker
from worker import config
from worker.model import layout

BLOCK = layout.block_file(1)
NUM_FRAMES = 24


@pytest.fixture
def plane() -> Iterator[ControlPlaneOfTests]:
    desired = DesiredState(fleet="demo", worker="w1", generation=5, flags={})
    with planes.control_plane(desired) as plane:
        yield plane


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"


def _frames(worker: WorkerProcess) -> list[bytes]:
    """The first pictures of a session, as a viewer has them."""

    async def received() -> list[bytes]:
        frames: list[bytes] = []
        async with asyncio.timeout(60), connect(worker.url, proxy=None) as viewer:
            await viewer.send(json.dumps({"first_forward_length": 16, "seed": 1}))
            async for message in viewer:
                if isinstance(message, bytes):
                    frames.append(message)
                if len(frames) == NUM_FRAMES:
                    break
        return frames

    return asyncio.run(received())


def _served(tmp_path: Path, plane: ControlPlaneOfTests, **settings: Any) -> list[bytes]:
    with running_worker(tmp_path / "w1", url=plane.url, **settings) as worker:
        plane.wait_for(lambda: bool(plane.effectives))
        frames = _frames(worker)
    plane.effectives.clear()
    return frames


def test_viewers_see_the_weights_of_the_checkpoint_and_the_fleet_sees_its_digest(
    plane: ControlPlaneOfTests, tmp_path: Path, folder: Path
) -> None:
    """The pictures of the seed, byte for byte; those of another seed from another checkpoint."""
    model = config.tiny().model
    digest = folders.written(folder, model)
    other = folders.written(tmp_path / "other", replace(model, seed=7))
    drawn = _served(tmp_path, plane)
    loaded = _served(tmp_path, plane, checkpoint={"folder": str(folder), "digest": digest})
    others = _served(tmp_path, plane, checkpoint={"folder": str(tmp_path / "other")})
    assert drawn == loaded != others
    weights = [registration.stack.get("weights") for registration in plane.registrations]
    assert weights == [None, digest, other]


def _ended_by_itself(tmp_path: Path, plane: ControlPlaneOfTests, folder: Path) -> tuple[int, str]:
    """Exit code and the last line on standard error of a worker that cannot start."""
    path = tmp_path / "refused.json"
    fields = {
        "fleet": "demo",
        "worker": "w1",
        "preset": "tiny",
        "url": plane.url,
        "state_dir": str(tmp_path / "refused"),
        "flush_s": 0.5,
        "checkpoint": {"folder": str(folder)},
    }
    path.write_text(json.dumps(fields))
    ended = subprocess.run(
        [sys.executable, "-m", "worker.main", "run", "--config", str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return ended.returncode, ended.stderr.splitlines()[-1]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("breaks", "key"), [(folders.flipped, "sha256"), (_cut, "length")], ids=["flipped", "cut"]
)
def test_a_worker_whose_checkpoint_is_refused_ends_with_a_sentence_before_it_registers(
    plane: ControlPlaneOfTests,
    tmp_path: Path,
    folder: Path,
    breaks: Callable[[Path], None],
    key: str,
) -> None:
    """To wait with random weights, or to try for ever, would look like a worker that is coming."""
    folders.written(folder, config.tiny().model)
    breaks(folder / BLOCK)
    code, sentence = _ended_by_itself(tmp_path, plane, folder)
    assert code == 2
    assert sentence.startswith(f"checkpoint {folder}: {BLOCK}: {key} is ")
    assert "; allowed: " in sentence
    assert plane.registrations == []


def test_a_folder_without_a_manifest_is_refused_before_any_process_starts(
    plane: ControlPlaneOfTests, tmp_path: Path, folder: Path
) -> None:
    """An interrupted copy, or a mistyped name."""
    code, sentence = _ended_by_itself(tmp_path, plane, folder)
    assert code == 2
    assert sentence == (
        f"checkpoint.folder is '{folder}': manifest.json is 'No such file or directory'; "
        "allowed: a file that can be read"
    )
    assert not (tmp_path / "refused" / "worker.json").exists()


def test_a_worker_whose_checkpoint_is_exchanged_ends_at_its_next_restart(
    plane: ControlPlaneOfTests, tmp_path: Path, folder: Path
) -> None:
    """Its next life reads what is there, and registers under that name; flags are not blamed."""
    folders.written(folder, config.tiny().model)
    source = {"folder": str(folder)}
    with running_worker(tmp_path / "w1", url=plane.url, checkpoint=source) as worker:
        plane.wait_for(lambda: bool(plane.effectives))
        family = worker.descendants()
        folders.exchanged(folder / BLOCK)
        worker.kill_rank()
        assert _exit_code(worker) == 2
        assert alive_after(family, timeout_s=10) == []
    last = (tmp_path / "w1.log").read_text().splitlines()[-1]
    assert f"checkpoint {folder}: {BLOCK} is 'another file'; allowed: the file that was" in last
    assert [trip.reason for trip in plane.trips] == ["rank_died"]  # of the rank that was killed


def _exit_code(worker: WorkerProcess) -> int | None:
    limit = time.monotonic() + 40
    while worker._process.poll() is None and time.monotonic() < limit:
        time.sleep(0.05)
    return worker._process.poll()
