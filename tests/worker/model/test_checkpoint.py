"""A checkpoint gives every rank of any number exactly its part of the weights."""

from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.worker.model import folders
from worker.config import TINY_EDGE_MODEL, ModelConfig
from worker.model import checkpoint, checkpoint_writer, layout, weights
from worker.model.manifest import CheckpointError
from worker.model.weights import Weights

RANKS = (1, 2, 3, 4, 6)


def _tensors(held: Weights) -> list[Tensor]:
    shared = [getattr(held, each.name) for each in fields(held) if each.name != "blocks"]
    blocks = [getattr(b, each.name) for b in held.blocks for each in fields(b)]
    return [*shared, *blocks]


@pytest.fixture(params=["float32", "bfloat16"])
def dtype(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("num_ranks", RANKS)
def test_each_rank_loads_the_bits_that_it_would_have_drawn(
    tmp_path: Path, num_ranks: int, dtype: str
) -> None:
    """The seed's weights through a file and back: what the small model computes stays the same."""
    folders.written(tmp_path, dtype=dtype)
    opened = checkpoint.opened(tmp_path, folders.MODEL)
    for rank in range(num_ranks):
        loaded = _tensors(checkpoint.load(opened, rank=rank, num_ranks=num_ranks))
        drawn = _tensors(weights.draw(folders.MODEL, rank=rank, num_ranks=num_ranks))
        for one, other in zip(loaded, drawn, strict=True):
            assert torch.equal(one, other.to(getattr(torch, dtype)))
            assert one.is_contiguous()


def test_a_checkpoint_in_bf16_loads_as_float32_where_that_is_asked(tmp_path: Path) -> None:
    """The CPU has no fast BF16."""
    folders.written(tmp_path, dtype="bfloat16")
    opened = checkpoint.opened(tmp_path, folders.MODEL)
    loaded = _tensors(checkpoint.load(opened, rank=0, num_ranks=1, dtype=torch.float32))
    stored = _tensors(checkpoint.load(opened, rank=0, num_ranks=1))
    assert {tensor.dtype for tensor in loaded} == {torch.float32}
    assert all(torch.equal(a, b.float()) for a, b in zip(loaded, stored, strict=True))


def test_loaded_weights_outlive_the_files(tmp_path: Path) -> None:
    """A view of the map would keep the whole file in memory, and change when it does."""
    folders.written(tmp_path)
    opened = checkpoint.opened(tmp_path, folders.MODEL)
    loaded = _tensors(checkpoint.load(opened, rank=1, num_ranks=2))
    before = [tensor.clone() for tensor in loaded]
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(bytes(path.stat().st_size))
    assert all(torch.equal(a, b) for a, b in zip(loaded, before, strict=True))
    storages = [tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in loaded]
    assert all(storages)


def test_one_seed_has_one_name_and_another_seed_another(tmp_path: Path) -> None:
    """The digest is what a worker's fingerprint carries."""
    names = {
        folder: folders.written(tmp_path / folder, replace(folders.MODEL, seed=seed))
        for folder, seed in (("a", 1), ("b", 1), ("c", 2))
    }
    assert names["a"] == names["b"] != names["c"]
    opened = checkpoint.opened(tmp_path / "a", folders.MODEL, digest=names["a"])
    assert opened.digest == names["a"]


def test_what_does_not_touch_the_weights_may_differ(tmp_path: Path) -> None:
    """Window, reset and passes: a checkpoint serves the model at any of them."""
    folders.written(tmp_path)
    model: ModelConfig = replace(TINY_EDGE_MODEL, seed=1)
    assert checkpoint.opened(tmp_path, model).model == model


def test_a_writer_refuses_a_folder_in_use_and_an_unknown_dtype(tmp_path: Path) -> None:
    """Half of one checkpoint and half of another would be neither."""
    folders.written(tmp_path / "used")
    whole = weights.draw(folders.MODEL, rank=0, num_ranks=1)
    with pytest.raises(CheckpointError, match=r"folder is .* allowed: an empty folder"):
        checkpoint_writer.write(tmp_path / "used", folders.MODEL, whole, dtype="float32")
    with pytest.raises(CheckpointError, match="dtype is 'float16'; allowed: float32, bfloat16"):
        checkpoint_writer.write(tmp_path / "new", folders.MODEL, whole, dtype="float16")
    assert not (tmp_path / "new").exists()


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As of a disk that is full; what is there then has no manifest, and is no checkpoint."""
    whole = weights.draw(folders.MODEL, rank=0, num_ranks=1)
    model, name = folders.MODEL, layout.block_file(1)

    def on_file(begun: str) -> None:
        if begun == name:
            (tmp_path / name).mkdir()

    with pytest.raises(CheckpointError, match=f"{name} is .* allowed: a file that can be written"):
        checkpoint_writer.write(tmp_path, model, whole, dtype="float32", on_file=on_file)
    with pytest.raises(CheckpointError, match=r"manifest\.json is 'No such file"):
        checkpoint.opened(tmp_path, model)
