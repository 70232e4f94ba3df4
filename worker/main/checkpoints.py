"""`steadyframe-worker checkpoint`: write weights of a seed as a checkpoint, or verify one.

Imports torch, unlike the rest of this package: the command imports it when it is asked for.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

with warnings.catch_warnings():
    # Without numpy torch warns once when it is imported; we need none.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch

from worker import config
from worker.config import MIB
from worker.model import checkpoint, checkpoint_writer, manifest, weights
from worker.model.manifest import Manifest, ModelFacts

Say = Callable[[str], None]
_PERCENT_A_LINE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a checkpoint is, for people and as JSON."""

    folder: str
    digest: str
    dtype: str
    num_files: int
    num_bytes: int
    model: dict[str, Any]


def write(folder: Path, *, preset: str, seed: int | None, say: Say) -> Contents:
    """Write what the seed of `preset`, or else `seed`, draws into the empty folder `folder`.

    Raises: CheckpointError.
    """
    torch.set_num_threads(1)
    model = config.PRESETS[preset]().model
    if seed is not None:
        model = replace(model, seed=seed)
    say(f"drawing the weights of {preset} from the seed {model.seed}")
    whole = weights.draw(model, rank=0, num_ranks=1)
    num_files = model.num_blocks + 1
    count = iter(range(1, num_files + 1))

    def on_file(name: str) -> None:
        say(f"writing {name} ({next(count)} of {num_files})")

    digest = checkpoint_writer.write(folder, model, whole, dtype="float32", on_file=on_file)
    return _contents(folder, manifest.read(folder)[0], digest)


def verify(folder: Path, *, digest: str | None, preset: str | None, say: Say) -> Contents:
    """Read all of the checkpoint in `folder`; of the model of `preset` if one is named.

    Raises: CheckpointError.
    """
    facts = ModelFacts.of(config.PRESETS[preset]().model) if preset else None
    found = checkpoint.verified(folder, digest=digest, facts=facts, on_progress=_told(say))
    return _contents(folder, found.manifest, found.digest)


def _contents(folder: Path, found: Manifest, digest: str) -> Contents:
    return Contents(
        folder=str(folder),
        digest=digest,
        dtype=found.dtype,
        num_files=len(found.files),
        num_bytes=found.num_bytes,
        model=found.model.model_dump(),
    )


def _told(say: Say) -> manifest.Progress:
    def told(done: int, total: int) -> None:
        say(f"read {done // MIB} of {total // MIB} MiB ({100 * done // total} %)")

    return manifest.by_percent(_PERCENT_A_LINE, told)
