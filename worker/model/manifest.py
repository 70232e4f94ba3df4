"""The manifest of a checkpoint: which model, which files, how long each and with which SHA-256.

Says what a folder holds and proves that it is so; knows nothing of tensors. A checkpoint is named
by the digest of its manifest.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from worker.config import ModelConfig

FILE_NAME = "manifest.json"
# A file of `full` takes 130 bytes here, of 61; more is not a manifest.
_MOST_BYTES = 1024 * 1024
_BUFFER_BYTES = 1024 * 1024
_Count = Annotated[int, Field(ge=0, strict=True)]
Progress = Callable[[int, int], None]  # bytes done, bytes in all


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

    @property
    def num_bytes(self) -> int:
        """Of all files."""
        return sum(facts.num_bytes for facts in self.files.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What tells one state of a file from another without reading it."""

    device: int
    inode: int
    num_bytes: int
    modified_ns: int
    changed_ns: int  # of content, mode or links; unlike the time above, no program can set it


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


def by_percent(step: int, told: Progress) -> Progress:
    """Progress that is passed on to `told` once for each further `step` percent."""
    last_percent = 0

    def on_progress(done: int, total: int) -> None:
        nonlocal last_percent
        percent = 100 * done // total
        if percent >= last_percent + step:
            last_percent = percent
            told(done, total)

    return on_progress


def verified(
    folder: Path, manifest: Manifest, *, on_progress: Progress | None = None
) -> dict[str, Identity]:
    """Read every file once and compare it with the manifest; lengths first, they cost nothing.

    Calls `on_progress` for every MiB.

    Returns: by name, what each file must still be when it is loaded.
    Raises: CheckpointError for the first file that is absent, cut short or another.
    """
    identities = {name: identity(folder / name) for name in manifest.files}
    for name, facts in manifest.files.items():
        num_bytes = identities[name].num_bytes
        if num_bytes != facts.num_bytes:
            raise CheckpointError(f"{name}: length", num_bytes, f"{facts.num_bytes} bytes")
    total, done = manifest.num_bytes, 0

    def on_read(num_bytes: int) -> None:
        nonlocal done
        done += num_bytes
        if on_progress is not None:
            on_progress(done, total)

    for name, facts in manifest.files.items():
        with _refusing(name):
            sha256 = file_sha256(folder / name, on_read=on_read)
        if sha256 != facts.sha256:
            raise CheckpointError(f"{name}: sha256", sha256, facts.sha256)
    return identities


def file_sha256(path: Path, *, on_read: Callable[[int], None] = lambda _: None) -> str:
    """The SHA-256 of a file of any length, read through a small buffer."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    with path.open("rb", buffering=0) as file:
        while num_bytes := file.readinto(buffer):
            digest.update(buffer[:num_bytes])
            on_read(num_bytes)
    return digest.hexdigest()


def identity(path: Path) -> Identity:
    """What the file at `path` is now. Raises: CheckpointError when there is none."""
    with _refusing(path.name):
        found = path.stat()
    return Identity(
        device=found.st_dev,
        inode=found.st_ino,
        num_bytes=found.st_size,
        modified_ns=found.st_mtime_ns,
        changed_ns=found.st_ctime_ns,
    )


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
