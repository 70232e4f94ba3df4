"""The manifest of a checkpoint: which model, which files, how long each and with which SHA-256.

Says what a folder holds and proves that it is so; knows nothing of tensors. A checkpoint is named
by the digest of its manifest.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worker.config import ModelConfig

FILE_NAME = "manifest.json"
# A file of `full` takes 130 bytes here, of 61; more is not a manifest.
_MOST_BYTES = 1024 * 1024
_Count = Annotated[int, Field(ge=0, strict=True)]


class CheckpointError(ValueError):
    """A checkpoint cannot be used; names the key, the value and what is allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key} is {value!r}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class FileFacts(BaseModel):
    """One file as it was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_bytes: _Count
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class ModelFacts(BaseModel):
    """The numbers of a model that its weights depend on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_blocks: _Count
    width: _Count
    num_heads: _Count
    mlp_width: _Count
    latent_channels: _Count
    num_extra_tokens: _Count

    @classmethod
    def of(cls, model: ModelConfig) -> Self:
        """The facts of `model`."""
        return cls(**{key: getattr(model, key) for key in cls.model_fields})


class Manifest(BaseModel):
    """What is in a checkpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    dtype: Literal["float32", "bfloat16"]
    model: ModelFacts
    files: dict[str, FileFacts]


@dataclass(frozen=True, slots=True)
class Identity:
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    num_bytes: int
    modified_ns: int


def write(folder: Path, manifest: Manifest) -> str:
    """Write the manifest, which makes the folder a checkpoint. Returns: its digest."""
    content = manifest.model_dump_json(indent=1).encode()
    unfinished = folder / f".{FILE_NAME}.part"
    unfinished.write_bytes(content)
    unfinished.replace(folder / FILE_NAME)
    return hashlib.sha256(content).hexdigest()


def read(folder: Path) -> tuple[Manifest, str]:
    """The manifest of the checkpoint in `folder` and its digest. Raises: CheckpointError."""
    path = folder / FILE_NAME
    content = _content(path)
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(["manifest", *(str(part) for part in first["loc"])])
        raise CheckpointError(key, first["input"], first["msg"]) from error
    return manifest, hashlib.sha256(content).hexdigest()


def verified(folder: Path, manifest: Manifest) -> dict[str, Identity]:
    """Read every file once and compare it with the manifest; lengths first, they cost nothing.

    Returns: by name, what each file must still be when it is loaded.
    Raises: CheckpointError for the first file that is absent, cut short or another.
    """
    identities = {name: identity(folder / name) for name in manifest.files}
    for name, facts in manifest.files.items():
        num_bytes = identities[name].num_bytes
        if num_bytes != facts.num_bytes:
            raise CheckpointError(f"{name}: length", num_bytes, f"{facts.num_bytes} bytes")
    for name, facts in manifest.files.items():
        with _refusing(name):
            sha256 = file_sha256(folder / name)
        if sha256 != facts.sha256:
            raise CheckpointError(f"{name}: sha256", sha256, facts.sha256)
    return identities


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file of any length, read through a small buffer."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def identity(path: Path) -> Identity:
    """What the file at `path` is now. Raises: CheckpointError when there is none."""
    with _refusing(path.name):
        found = path.stat()
    return Identity(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _content(path: Path) -> bytes:
    found = identity(path)
    if found.num_bytes > _MOST_BYTES:
        raise CheckpointError(f"{path.name}: length", found.num_bytes, f"{_MOST_BYTES} or less")
    with _refusing(path.name):
        return path.read_bytes()


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """What the system says of a file as a refusal of that file."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(name, error.strerror, "a file that can be read") from error
