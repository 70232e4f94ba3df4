"""Whole weights as a checkpoint, one block at a time."""

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError, TensorSpec, serialize_file
from torch import Tensor

from worker.config import ModelConfig
from worker.model import layout, manifest
from worker.model.manifest import CheckpointError, FileFacts, Manifest, ModelFacts
from worker.model.weights import BlockWeights, Weights

DTYPES = ("float32", "bfloat16")


def write(
    folder: Path,
    model: ModelConfig,
    weights: Weights,
    *,
    dtype: str,
    on_file: Callable[[str], None] = lambda _: None,
) -> str:
    """Write the weights of the one rank of an unsplit model into the empty folder `folder`.

    The manifest comes last: a folder without it is no checkpoint. Calls `on_file` with the name of
    each file that it begins.

    Returns: the digest that names the checkpoint.
    Raises: CheckpointError for another dtype, a folder that is not empty, and a file that cannot be
        written.
    """
    if dtype not in DTYPES:
        raise CheckpointError("dtype", dtype, ", ".join(DTYPES))
    _make_empty(folder)
    files: dict[str, FileFacts] = {}
    for block, held in enumerate(weights.blocks):
        name = layout.block_file(block)
        on_file(name)
        files[name] = _written(folder / name, _block_tensors(model, held), dtype=dtype)
    on_file(layout.SHARED_FILE)
    path = folder / layout.SHARED_FILE
    files[path.name] = _written(path, _shared_tensors(weights), dtype=dtype)
    facts = ModelFacts.of(model)
    return manifest.write(
        folder, Manifest.model_validate({"dtype": dtype, "model": facts, "files": files})
    )


def _make_empty(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        is_empty = not any(folder.iterdir())
    except OSError as error:
        raise CheckpointError("folder", str(folder), f"an empty folder ({error})") from error
    if not is_empty:
        raise CheckpointError("folder", str(folder), "an empty folder")


def _written(path: Path, tensors: dict[str, Tensor], *, dtype: str) -> FileFacts:
    stored = {
        name: tensor.to(getattr(torch, dtype)).contiguous() for name, tensor in tensors.items()
    }
    # The library writes from the addresses; `stored` keeps them alive until it has.
    specs = {
        name: TensorSpec(
            dtype=dtype,
            shape=tensor.shape,
            data_ptr=tensor.data_ptr(),
            data_len=tensor.nbytes,
        )
        for name, tensor in stored.items()
    }
    try:
        serialize_file(specs, path)
    except SafetensorError as error:
        raise CheckpointError(path.name, str(error), "a file that can be written") from error
    return FileFacts(num_bytes=path.stat().st_size, sha256=manifest.file_sha256(path))


def _block_tensors(model: ModelConfig, held: BlockWeights) -> dict[str, Tensor]:
    wide, mlp = model.width, model.mlp_width
    inputs = torch.split(held.input_ND, [wide, wide, wide, mlp, mlp])
    outputs = torch.split(held.output_DK, [wide, mlp], dim=1)
    names = [entry.name for entry in layout.block_entries(model)]
    return dict(zip(names, [*inputs, *outputs, held.modulation_3D], strict=True))


def _shared_tensors(weights: Weights) -> dict[str, Tensor]:
    return {
        "latent_in": weights.latent_in_DC,
        "latent_out": weights.latent_out_CD,
        "extra": weights.extra_ED,
        "time": weights.time_DD,
        "modulation": weights.modulation_3DD,
    }
