"""Checkpoints for tests, and ways to break them."""

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    # Without numpy torch warns once when it is imported; every other warning stays an error.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch

from safetensors.torch import load_file, save_file
from torch import Tensor

from worker.config import TINY_MODEL, ModelConfig
from worker.model import checkpoint_writer, manifest, weights

# 12 heads and 768 channels divide by every number of ranks that production may take: 1, 2, 3, 4, 6.
MODEL = TINY_MODEL
OTHER = replace(TINY_MODEL, mlp_width=384)
# 8 blocks of 9 MiB in float32: large beside what Python allocates by the way.
LARGE = replace(
    TINY_MODEL, num_blocks=8, width=384, num_heads=8, mlp_width=1536, rope_split=(24, 12, 12)
)


def written(folder: Path, model: ModelConfig = MODEL, *, dtype: str = "float32") -> str:
    """A checkpoint of the weights that the seed of `model` draws. Returns: its digest."""
    whole = weights.draw(model, rank=0, num_ranks=1)
    return checkpoint_writer.write(folder, model, whole, dtype=dtype)


def rewritten(path: Path, change: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
    """Other tensors in one file, and a manifest that agrees with it."""
    save_file(change({name: t.clone() for name, t in load_file(path).items()}), path)
    signed(path)


def signed(path: Path) -> None:
    """The manifest beside `path` made to agree with what is in it now."""
    facts = {"num_bytes": path.stat().st_size, "sha256": manifest.file_sha256(path)}
    edited(path.parent, lambda fields: fields["files"].update({path.name: facts}))


def edited(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Another manifest."""
    path = folder / manifest.FILE_NAME
    fields = json.loads(path.read_text())
    change(fields)
    path.write_text(json.dumps(fields))


def doubled(tensor: Tensor) -> Tensor:
    """The same in another dtype."""
    return tensor.to(torch.float64)


def flipped(path: Path) -> None:
    """One bit in the middle of a file is another."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def exchanged(path: Path) -> None:
    """The same bytes in another file of that name, as a deployment writes it."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)
