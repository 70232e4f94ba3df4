"""A group that computes with the weights of a checkpoint, or does not start at all."""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.engine.conftest import Stand, Taken
from tests.worker.model import folders
from worker import config, flags
from worker.config import MIB, CheckpointSource, WorkerConfig
from worker.engine.api import Chunk
from worker.engine.engine import LocalEngine, WeightsRefusedError
from worker.engine.group import Group
from worker.engine.launcher import CheckpointRefusedError, ForkServerClient, LaunchError
from worker.model import layout

TINY = config.tiny()
FIRST, LAST = layout.block_file(0), layout.SHARED_FILE


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A checkpoint that is not touched, and its digest."""
    folder = tmp_path_factory.mktemp("original")
    return folder, folders.written(folder, TINY.model)


@pytest.fixture
def folder(original: tuple[Path, str], tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    copy = tmp_path / "checkpoint"
    shutil.copytree(original[0], copy)
    return copy


def _at(folder: Path, *, digest: str | None = None, worker: WorkerConfig = TINY) -> WorkerConfig:
    return replace(worker, checkpoint=CheckpointSource(folder=str(folder), digest=digest))


def _video(chunks: list[Chunk]) -> list[tuple[bytes, ...]]:
    return [chunk.frames for chunk in chunks]


def _children(pid: int | None) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _status(pid: int | None, key: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _bytes_read(pid: int | None) -> int:
    """By calls: what is mapped is not counted."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_a_checkpoint_makes_the_very_pictures_of_the_seed_that_it_was_drawn_from(
    stand: Stand, taken: Taken, original: tuple[Path, str], num_ranks: int
) -> None:
    """Over a reset of the positions, and on any number of ranks."""
    folder, digest = original
    worker = replace(TINY, num_ranks=num_ranks)
    videos = []
    for each in (worker, _at(folder, digest=digest, worker=worker)):
        engine = stand.started(each, "fused_steady")
        videos.append(_video(stand.run(taken(engine, 12))))
        stand.run(engine.stop())
    assert videos[0] == videos[1]


def test_a_checkpoint_of_another_seed_makes_other_pictures(
    stand: Stand, taken: Taken, original: tuple[Path, str], tmp_path: Path
) -> None:
    """So that the test above cannot pass by a checkpoint that nobody reads."""
    folders.written(tmp_path / "other", replace(TINY.model, seed=7))
    videos = []
    for folder in (original[0], tmp_path / "other"):
        engine = stand.started(_at(folder))
        videos.append(_video(stand.run(taken(engine, 2))))
        stand.run(engine.stop())
    assert videos[0] != videos[1]


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _without_key(path: Path) -> None:
    folders.rewritten(path, lambda tensors: {n: t for n, t in tensors.items() if n != "key"})


def _transposed(path: Path) -> None:
    folders.rewritten(path, lambda t: {**t, "mlp_out": t["mlp_out"].T.contiguous()})


@pytest.mark.parametrize(
    ("breaks", "sentence"),
    [
        (folders.flipped, rf"{FIRST}: sha256 is '[0-9a-f]{{64}}'; allowed: [0-9a-f]{{64}}$"),
        (_cut, rf"{FIRST}: length is \d+; allowed: \d+ bytes$"),
        (Path.unlink, rf"{FIRST} is 'No such file or directory'; allowed: a file that can be read"),
        (_without_key, rf"{FIRST}: tensors is 'without key'; allowed: all 8 of them$"),
        (_transposed, rf"{FIRST}: mlp_out: shape is \(768, 192\); allowed: \(192, 768\)$"),
    ],
    ids=["flipped", "cut", "absent", "tensor", "shape"],
)
def test_a_checkpoint_that_is_not_what_it_must_be_is_refused_before_anything_is_forked(
    stand: Stand, folder: Path, breaks: Callable[[Path], None], sentence: str
) -> None:
    """Told with the file, the key, the value and what is allowed."""
    breaks(folder / FIRST)
    engine = stand.engine(_at(folder))
    with pytest.raises(WeightsRefusedError, match=f"^checkpoint {folder}: {sentence}"):
        stand.run(engine.start({}, generation=1))
    assert set(engine.pids()) == {"forkserver"}
    assert _children(engine.pids()["forkserver"]) == []


def test_another_checkpoint_than_the_one_that_is_pinned_is_refused(
    stand: Stand, folder: Path, original: tuple[Path, str]
) -> None:
    """Though it agrees with its own manifest; and a digest that was proven proves no other."""
    stand.run(stand.started(_at(folder, digest=original[1])).stop())
    engine = stand.engine(_at(folder, digest="0" * 64))
    sentence = f"digest is '{original[1]}'; allowed: {'0' * 64}"
    with pytest.raises(WeightsRefusedError, match=sentence):
        stand.run(engine.start({}, generation=1))
    assert set(engine.pids()) == {"forkserver"}


def _in_place(path: Path) -> None:
    """The same bytes written again."""
    path.write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        (FIRST, folders.exchanged),
        (LAST, folders.exchanged),
        (LAST, _in_place),
        (FIRST, Path.unlink),
    ],
)
def test_a_file_that_changed_since_it_was_verified_ends_the_restart(
    stand: Stand, folder: Path, name: str, changes: Callable[[Path], None]
) -> None:
    """Nobody has read what is there now; a worker that ran it would run unproven weights."""
    engine = stand.started(_at(folder))
    changes(folder / name)
    with pytest.raises(WeightsRefusedError, match=rf"rank\d: checkpoint {folder}: {name} is '"):
        stand.run(engine.restart({}, generation=2))
    assert set(engine.pids()) == {"forkserver"}
    assert _children(engine.pids()["forkserver"]) == []


def test_a_restart_does_not_read_the_checkpoint_again(stand: Stand, folder: Path) -> None:
    """113 GB take minutes; a group that died is replaced in a second."""
    engine = stand.started(_at(folder))
    pid = engine.pids()["forkserver"]
    before = _bytes_read(pid)
    stand.run(engine.restart({}, generation=2))
    once = sum(path.stat().st_size for path in folder.iterdir())
    assert _bytes_read(pid) - before < MIB < once
    assert _status(pid, "Threads") == 1


def test_a_fork_server_that_was_replaced_proves_the_checkpoint_anew(
    stand: Stand, folder: Path, original: tuple[Path, str]
) -> None:
    """Its proofs died with it; the digest that the worker has told its control plane did not."""
    server = ForkServerClient(start_timeout_s=30)
    engine = LocalEngine(_at(folder, digest=original[1]), server=server)
    stand.engines.append(engine)
    try:
        stand.run(engine.start({}, generation=1))
        stand.run(server.stop())
        shutil.rmtree(folder)
        folders.written(folder, replace(TINY.model, seed=7))
        with pytest.raises(WeightsRefusedError, match=f"digest is .* allowed: {original[1]}$"):
            stand.run(engine.restart({}, generation=2))
        shutil.rmtree(folder)
        folders.written(folder, TINY.model)
        stand.run(engine.restart({}, generation=3))
        assert "rank0" in engine.pids()
    finally:
        stand.run(engine.stop())
        stand.run(server.stop())


def test_a_group_of_an_unproven_checkpoint_is_not_forked(stand: Stand, folder: Path) -> None:
    """A server that died between the proof and the launch has a successor that knows nothing."""
    kept = os.memfd_create("kept")
    group = Group(
        _at(folder),
        launch=0,
        kept=kept,
        on_message=lambda *_: None,
        on_failed=lambda *_: None,
    )
    with pytest.raises(LaunchError, match="the checkpoint is not proven") as refused:
        stand.run(group.fork(stand.server, flags.fallback(), generation=1))
    stand.run(group.end(stand.server))
    os.close(kept)
    assert not isinstance(refused.value, CheckpointRefusedError)  # another try may succeed
    assert _children(stand.server.pid) == []


def _enlarged(folder: Path, num_bytes: int) -> None:
    """A last file of that length, all zeros, which takes long to read and no room on the disk."""
    with (folder / LAST).open("ab") as file:
        file.truncate(num_bytes)
    facts = {"num_bytes": num_bytes, "sha256": "0" * 64}
    folders.edited(folder, lambda fields: fields["files"].update({LAST: facts}))


def test_reading_a_checkpoint_may_take_longer_than_a_start(
    stand: Stand, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows how far it is instead."""
    _enlarged(folder, 512 * MIB)
    caplog.set_level(logging.INFO)
    engine = stand.engine(_at(folder, worker=replace(TINY, start_timeout_s=0.01)))
    with pytest.raises(WeightsRefusedError, match=f"{LAST}: sha256"):
        stand.run(engine.start({}, generation=1))
    assert "checkpoint_being_verified" in caplog.text


def test_a_start_that_is_given_up_while_a_checkpoint_is_read_leaves_nothing(
    stand: Stand, folder: Path
) -> None:
    """A worker that is told to stop does not read on for minutes."""
    _enlarged(folder, 64 * 1024 * MIB)
    server = ForkServerClient(start_timeout_s=30)
    engine = LocalEngine(_at(folder), server=server)

    async def given_up() -> int | None:
        start = asyncio.create_task(engine.start({}, generation=1))
        while not (server.pid and _bytes_read(server.pid) > 512 * MIB):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.05)
        pid = server.pid
        start.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await start
        await engine.stop()
        return pid

    pid = stand.run(given_up())
    assert server.pid is None
    assert not Path(f"/proc/{pid}").exists()
