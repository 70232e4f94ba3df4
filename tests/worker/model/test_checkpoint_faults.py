"""Whatever is wrong with a checkpoint is refused by name before a weight of it is used."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.worker.model import folders
from worker.model import checkpoint, layout, manifest
from worker.model.manifest import CheckpointError

BLOCK = layout.block_file(1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folders.written(tmp_path)
    return tmp_path


def _refusal(folder: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as refused:
        checkpoint.opened(folder, folders.MODEL)
    assert str(refused.value) == (
        f"{refused.value.key} is {refused.value.value!r}; allowed: {refused.value.allowed}"
    )
    return refused.value


def _without(tensors: dict[str, Tensor], *names: str) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in tensors.items() if name not in names}


@pytest.mark.parametrize(
    ("change", "key", "value", "allowed"),
    [
        (
            lambda t: _without(t, "query", "up"),
            f"{BLOCK}: tensors",
            "without query, up",
            "all 8 of them",
        ),
        (
            lambda t: {**t, "bias": torch.zeros(3)},
            f"{BLOCK}: tensors",
            "with bias",
            "query, key, value, gate, up and 3 more",
        ),
        (
            lambda t: {**t, "mlp_out": t["mlp_out"].T.contiguous()},
            f"{BLOCK}: mlp_out: shape",
            (768, 192),
            "(192, 768)",
        ),
        (
            lambda t: {**t, "key": t["key"].flatten()},
            f"{BLOCK}: key: shape",
            (192 * 192,),
            "(192, 192)",
        ),
        (
            lambda t: {**t, "gate": folders.doubled(t["gate"])},
            f"{BLOCK}: gate: dtype",
            "F64",
            "F32",
        ),
        (
            lambda t: {**t, "modulation": t["modulation"].to(torch.int32)},
            f"{BLOCK}: modulation: dtype",
            "I32",
            "F32",
        ),
    ],
    ids=["missing", "surplus", "transposed", "flat", "dtype", "integers"],
)
def test_a_file_with_other_tensors_is_refused_though_its_digest_is_right(
    folder: Path,
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]],
    key: str,
    value: object,
    allowed: str,
) -> None:
    """A digest proves which bytes these are, not that they fit the model."""
    folders.rewritten(folder / BLOCK, change)
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value, refusal.allowed) == (key, value, allowed)


@pytest.mark.parametrize("name", [layout.block_file(0), BLOCK, layout.SHARED_FILE])
def test_a_flipped_bit_in_any_file_is_noticed(folder: Path, name: str) -> None:
    """In the header, in the first tensor, in the last byte: the digest is over the whole file."""
    path = folder / name
    content = path.read_bytes()
    proven = manifest.file_sha256(path)
    for at in (9, len(content) // 2, len(content) - 1):
        broken = bytearray(content)
        broken[at] ^= 1
        path.write_bytes(broken)
        refusal = _refusal(folder)
        assert (refusal.key, refusal.allowed) == (f"{name}: sha256", proven)


@pytest.mark.parametrize("num_bytes", [0, 7, 500, -1])
def test_a_file_cut_short_is_refused_by_its_length(folder: Path, num_bytes: int) -> None:
    """What an interrupted copy leaves: noticed at once, without reading 113 GB."""
    path = folder / BLOCK
    content = path.read_bytes()
    path.write_bytes(content[:num_bytes])
    refusal = _refusal(folder)
    assert refusal.key == f"{BLOCK}: length"
    assert refusal.value == len(content[:num_bytes])
    assert refusal.allowed == f"{len(content)} bytes"


@pytest.mark.parametrize("num_bytes", [0, 7, 500, -1])
def test_a_file_cut_short_before_its_manifest_was_made_is_refused_too(
    folder: Path, num_bytes: int
) -> None:
    """The header says how long the file must be."""
    path = folder / BLOCK
    path.write_bytes(path.read_bytes()[:num_bytes])
    folders.signed(path)
    refusal = _refusal(folder)
    assert (refusal.key, refusal.allowed) == (BLOCK, "a whole safetensors file")


@pytest.mark.parametrize("name", [BLOCK, layout.SHARED_FILE, manifest.FILE_NAME])
def test_a_file_that_is_absent_is_named(folder: Path, name: str) -> None:
    """And what was found instead."""
    (folder / name).unlink()
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value) == (name, "No such file or directory")


@pytest.mark.parametrize("name", [BLOCK, layout.SHARED_FILE, manifest.FILE_NAME])
def test_what_cannot_be_read_is_named(folder: Path, name: str) -> None:
    """A folder in the place of a file, which even its owner cannot read."""
    path = folder / name
    path.unlink()
    path.mkdir()
    facts = {"num_bytes": path.stat().st_size, "sha256": "0" * 64}
    if name != manifest.FILE_NAME:
        folders.edited(folder, lambda fields: fields["files"].update({name: facts}))
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value) == (name, "Is a directory")


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        (lambda f: f["model"].update(num_blocks=3), "manifest.model.num_blocks", 3),
        (lambda f: f["model"].update(width=96), "manifest.model.width", 96),
        (lambda f: f["model"].update(num_heads=6), "manifest.model.num_heads", 6),
        (lambda f: f["model"].update(width="192"), "manifest.model.width", "192"),
        (lambda f: f["model"].update(depth=2), "manifest.model.depth", 2),
        (lambda f: f.update(format=2), "manifest.format", 2),
        (lambda f: f.update(dtype="float16"), "manifest.dtype", "float16"),
        (lambda f: f.update(signed=True), "manifest.signed", True),
        (lambda f: f["files"].pop(BLOCK), "manifest.files", f"without {BLOCK}"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_manifest_that_does_not_fit_is_refused_by_key(
    folder: Path, change: Callable[[dict[str, Any]], object], key: str, value: object
) -> None:
    """Heads are checked too: another number of them has the same shapes and another meaning."""
    folders.edited(folder, change)
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value) == (key, value)


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "block-00002.safetensors"])
def test_a_manifest_reaches_no_file_that_the_model_does_not_have(folder: Path, name: str) -> None:
    """Names are compared before any of them is opened."""
    facts = {"num_bytes": 1, "sha256": "0" * 64}
    folders.edited(folder, lambda fields: fields["files"].update({name: facts}))
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value) == ("manifest.files", f"with {name}")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"null"])
def test_what_is_no_manifest_is_refused(folder: Path, content: bytes) -> None:
    """Never a traceback of a parser."""
    (folder / manifest.FILE_NAME).write_bytes(content)
    assert _refusal(folder).key.startswith("manifest")


def test_a_manifest_of_any_length_is_not_read(folder: Path) -> None:
    """A limit on what an unknown file may take of memory."""
    with (folder / manifest.FILE_NAME).open("ab") as file:
        file.truncate(2**40)
    refusal = _refusal(folder)
    assert (refusal.key, refusal.value) == (f"{manifest.FILE_NAME}: length", 2**40)


def test_another_checkpoint_than_the_one_asked_for_is_refused(folder: Path, tmp_path: Path) -> None:
    """It agrees with its own manifest, and is not what was meant."""
    other = folders.written(tmp_path / "other", replace(folders.MODEL, seed=7))
    with pytest.raises(CheckpointError, match=f"digest is '[0-9a-f]{{64}}'; allowed: {other}"):
        checkpoint.opened(folder, folders.MODEL, digest=other)


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    """By the first number in which they differ."""
    folders.written(tmp_path, folders.OTHER)
    refusal = _refusal(tmp_path)
    assert (refusal.key, refusal.value, refusal.allowed) == ("manifest.model.mlp_width", 384, "768")


@pytest.mark.parametrize("num_ranks", [-2, 0, 5, 7, 8, 12])
def test_a_number_of_ranks_that_does_not_divide_is_refused(folder: Path, num_ranks: int) -> None:
    """12 heads and 768 channels; at most the eight devices of one host."""
    opened = checkpoint.opened(folder, folders.MODEL)
    with pytest.raises(CheckpointError, match=f"num_ranks is {num_ranks}; allowed: 1, 2, 3, 4, 6$"):
        checkpoint.load(opened, rank=0, num_ranks=num_ranks)


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_none_is_refused(folder: Path, rank: int) -> None:
    """A negative one would count from the end."""
    opened = checkpoint.opened(folder, folders.MODEL)
    with pytest.raises(CheckpointError, match=f"rank is {rank}; allowed: 0 to 2"):
        checkpoint.load(opened, rank=rank, num_ranks=3)


@pytest.mark.parametrize("name", [layout.block_file(0), layout.SHARED_FILE])
def test_a_file_exchanged_after_it_was_verified_is_refused(folder: Path, name: str) -> None:
    """A deployment may copy over the folder while ranks start."""
    opened = checkpoint.opened(folder, folders.MODEL)
    path = folder / name
    content = path.read_bytes()
    copy = path.with_suffix(".copy")
    copy.write_bytes(content[:-1] + b"\1")
    copy.replace(path)
    with pytest.raises(CheckpointError, match=f"{name} is .* the file that was verified"):
        checkpoint.load(opened, rank=0, num_ranks=1)


@pytest.mark.parametrize("name", [layout.block_file(0), layout.SHARED_FILE])
def test_a_file_written_in_place_is_another_though_its_time_is_set_back(
    folder: Path, name: str
) -> None:
    """A copy that keeps times does so; the time of the last change of the inode cannot be set."""
    opened = checkpoint.opened(folder, folders.MODEL)
    path = folder / name
    before = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    with pytest.raises(CheckpointError, match=f"{name} is .* the file that was verified"):
        checkpoint.load(opened, rank=0, num_ranks=1)


def test_without_a_model_a_checkpoint_is_held_against_its_own_manifest(folder: Path) -> None:
    """To look at one from anywhere."""
    found = checkpoint.verified(folder)
    assert found.manifest.model == manifest.ModelFacts.of(folders.MODEL)
    folders.rewritten(folder / BLOCK, lambda tensors: _without(tensors, "gate"))
    with pytest.raises(CheckpointError, match=f"{BLOCK}: tensors is 'without gate'"):
        checkpoint.verified(folder)


def test_a_manifest_that_claims_more_blocks_than_files_is_refused_at_once(folder: Path) -> None:
    """The names of that many files would fill the memory before one of them was missed."""
    folders.edited(folder, lambda fields: fields["model"].update(num_blocks=10**15))
    with pytest.raises(CheckpointError) as refused:
        checkpoint.verified(folder)
    key, allowed = refused.value.key, refused.value.allowed
    assert (key, allowed) == ("manifest.model.num_blocks", "3 or less: there are that many files")


def test_progress_goes_up_to_the_bytes_of_all_files(folder: Path) -> None:
    """By which a start is seen to get on, and a disk that hangs to hang."""
    told: list[tuple[int, int]] = []
    checkpoint.verified(folder, on_progress=lambda done, total: told.append((done, total)))
    total = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert told == sorted(told)
    assert told[-1] == (total, total)
    assert len(told) > total // 2**20
