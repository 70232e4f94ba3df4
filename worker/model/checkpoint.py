"""Weights from a checkpoint: all of it proven first, then the part of one rank.

Tensors are mapped, not read: a rank copies its rows and columns from the map to where they stay, so
that it allocates what it keeps and nothing beside. Must not know how a checkpoint is written.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from worker import shapes
from worker.config import ModelConfig
from worker.model import layout, manifest
from worker.model.layout import Entry, Split
from worker.model.manifest import CheckpointError, Identity, Manifest, ModelFacts, Progress
from worker.model.weights import BlockWeights, Weights

# The words of the file format for the dtypes of a manifest.
FORMAT_DTYPES = {"float32": "F32", "bfloat16": "BF16"}
_MOST_NAMED = 5  # of the tensors that are missing or too many
_NUM_INPUTS = 5  # query, key, value, gate, up
_NUM_PRODUCTS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A folder that was proven to hold the weights of `model`."""

    folder: Path
    model: ModelConfig
    manifest: Manifest
    digest: str  # of the manifest: the name of these weights
    identities: dict[str, Identity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """A folder that was proven to hold the weights of some model, the one of its manifest."""

    manifest: Manifest
    digest: str  # of the manifest
    identities: dict[str, Identity]


def opened(
    folder: Path,
    model: ModelConfig,
    *,
    digest: str | None = None,
    on_progress: Progress | None = None,
) -> Checkpoint:
    """The checkpoint in `folder`, if every byte and every tensor of it is as it must be.

    Reads all files once. With `digest` it must also be the very checkpoint of that name; without,
    only one that agrees with its own manifest.

    Raises: CheckpointError naming what is wrong, its value and what is allowed.
    """
    facts = ModelFacts.of(model)
    found = verified(folder, digest=digest, facts=facts, on_progress=on_progress)
    return Checkpoint(
        folder=folder,
        model=model,
        manifest=found.manifest,
        digest=found.digest,
        identities=found.identities,
    )


def verified(
    folder: Path,
    *,
    digest: str | None = None,
    facts: ModelFacts | None = None,
    on_progress: Progress | None = None,
) -> Verified:
    """What `opened` proves, of the model of `facts` or else of the one that the manifest names."""
    found, found_digest = manifest.read(folder)
    if digest is not None and found_digest != digest:
        raise CheckpointError("digest", found_digest, digest)
    if facts is None and found.model.num_blocks > len(found.files):
        # Or else the names of that many files would be made up: the number may be anyone's.
        allowed = f"{len(found.files)} or less: there are that many files"
        raise CheckpointError("manifest.model.num_blocks", found.model.num_blocks, allowed)
    _check_model(found, facts or found.model)
    identities = manifest.verified(folder, found, on_progress=on_progress)
    for name, entries in layout.files(found.model).items():
        with _mapped(folder / name) as file:
            _check_tensors(name, file, entries, dtype=found.dtype)
    return Verified(manifest=found, digest=found_digest, identities=identities)


def load(
    checkpoint: Checkpoint,
    *,
    rank: int,
    num_ranks: int,
    dtype: torch.dtype | None = None,
    on_block: Callable[[int], None] = lambda _: None,
) -> Weights:
    """The weights of `rank` out of `num_ranks`; in `dtype`, or as they are stored.

    Calls `on_block` with the number of each block that it begins.

    Raises: CheckpointError for a number of ranks that does not divide the model, a rank that is not
        one of them, and a file that is no longer the one that was proven.
    """
    model = checkpoint.model
    allowed = shapes.allowed_ranks(model)
    if num_ranks not in allowed:
        raise CheckpointError("num_ranks", num_ranks, ", ".join(str(each) for each in allowed))
    if not 0 <= rank < num_ranks:
        raise CheckpointError("rank", rank, f"0 to {num_ranks - 1}")
    kept = getattr(torch, checkpoint.manifest.dtype) if dtype is None else dtype
    part = _Part(rank=rank, num_ranks=num_ranks, dtype=kept)
    blocks = []
    for block in range(model.num_blocks):
        on_block(block)
        blocks.append(_block(checkpoint, block, part))
    with _proven(checkpoint, layout.SHARED_FILE) as file:
        latent_in, latent_out, extra, time, modulation = (
            part.copied(file, [entry], dim=0) for entry in layout.shared_entries(model)
        )
    return Weights(
        blocks=tuple(blocks),
        latent_in_DC=latent_in,
        latent_out_CD=latent_out,
        extra_ED=extra,
        time_DD=time,
        modulation_3DD=modulation,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Which part of each tensor is kept, and as what."""

    rank: int
    num_ranks: int
    dtype: torch.dtype

    def copied(self, file: "_File", entries: list[Entry], *, dim: int) -> Tensor:
        """This rank's parts of `entries`, one after the other along `dim`, in one allocation."""
        shapes_of_parts = [self._shape(entry) for entry in entries]
        whole = list(shapes_of_parts[0])
        whole[dim] = sum(shape[dim] for shape in shapes_of_parts)
        out = torch.empty(whole, dtype=self.dtype)
        at = 0
        for entry, shape in zip(entries, shapes_of_parts, strict=True):
            out.narrow(dim, at, shape[dim]).copy_(self._mapped(file, entry, shape))
            at += shape[dim]
        return out

    def _shape(self, entry: Entry) -> tuple[int, ...]:
        return tuple(
            size // self.num_ranks if dim == entry.split else size
            for dim, size in enumerate(entry.shape)
        )

    def _mapped(self, file: "_File", entry: Entry, shape: tuple[int, ...]) -> Tensor:
        whole = file.tensor(entry.name)
        if entry.split is Split.NONE:
            return whole
        size = shape[entry.split]
        return whole.narrow(int(entry.split), self.rank * size, size)


@dataclass(frozen=True, slots=True)
class _File:
    """A mapped file; the library behind it has no types."""

    names: tuple[str, ...]
    tensor: Callable[[str], Tensor]  # a view of the map
    described: Callable[[str], tuple[str, tuple[int, ...]]]  # dtype and shape, from the header


@contextmanager
def _mapped(path: Path) -> Iterator[_File]:
    try:
        with safe_open(path, framework="pt") as file:

            def described(name: str) -> tuple[str, tuple[int, ...]]:
                found = file.get_slice(name)
                return found.get_dtype(), tuple(found.get_shape())

            yield _File(tuple(file.keys()), file.get_tensor, described)
    except SafetensorError as error:
        raise CheckpointError(path.name, str(error), "a whole safetensors file") from error


@contextmanager
def _proven(checkpoint: Checkpoint, name: str) -> Iterator[_File]:
    path = checkpoint.folder / name
    if manifest.identity(path) != checkpoint.identities[name]:
        raise CheckpointError(name, "another file", "the file that was verified")
    with _mapped(path) as file:
        yield file


def _block(checkpoint: Checkpoint, block: int, part: _Part) -> BlockWeights:
    entries = layout.block_entries(checkpoint.model)
    with _proven(checkpoint, layout.block_file(block)) as file:
        return BlockWeights(
            input_ND=part.copied(file, list(entries[:_NUM_INPUTS]), dim=0),
            output_DK=part.copied(file, list(entries[_NUM_INPUTS:_NUM_PRODUCTS]), dim=1),
            modulation_3D=part.copied(file, list(entries[_NUM_PRODUCTS:]), dim=0),
        )


def _check_model(found: Manifest, facts: ModelFacts) -> None:
    for key, expected in facts.model_dump().items():
        value = getattr(found.model, key)
        if value != expected:
            raise CheckpointError(f"manifest.model.{key}", value, str(expected))
    _check_names("manifest.files", tuple(found.files), tuple(layout.files(facts)))


def _check_tensors(name: str, file: _File, entries: tuple[Entry, ...], *, dtype: str) -> None:
    _check_names(f"{name}: tensors", file.names, tuple(entry.name for entry in entries))
    for entry in entries:
        found_dtype, found_shape = file.described(entry.name)
        key = f"{name}: {entry.name}"
        if found_shape != entry.shape:
            raise CheckpointError(f"{key}: shape", found_shape, str(entry.shape))
        if found_dtype != FORMAT_DTYPES[dtype]:
            raise CheckpointError(f"{key}: dtype", found_dtype, FORMAT_DTYPES[dtype])


def _check_names(key: str, found: tuple[str, ...], expected: tuple[str, ...]) -> None:
    missing = [name for name in expected if name not in found]
    if missing:
        raise CheckpointError(key, f"without {_listed(missing)}", f"all {len(expected)} of them")
    surplus = [name for name in found if name not in expected]
    if surplus:
        raise CheckpointError(key, f"with {_listed(surplus)}", _listed(list(expected)))


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
