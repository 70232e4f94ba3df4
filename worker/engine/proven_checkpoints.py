"""Checkpoints that the fork server has proven: each once in its life, however often it forks.

Reads files and starts no thread: what is forked afterwards inherits nothing but a small value.
"""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

from worker.config import WorkerConfig
from worker.model import checkpoint
from worker.model.checkpoint import Checkpoint
from worker.model.manifest import ModelFacts

# The supervisor gives a server up that is silent for a whole start timeout; and a server that the
# supervisor has given up notices when it next says something.
PROGRESS_PERIOD_S = 0.5

_Key = tuple[str, str | None, ModelFacts]


class ProvenCheckpoints:
    """What is proven, by folder, digest and shape."""

    def __init__(self) -> None:
        self._proven: dict[_Key, Checkpoint] = {}

    def prove(self, config: WorkerConfig, *, on_progress: Callable[[int, int], None]) -> Checkpoint:
        """The checkpoint of `config`, read to its last byte if it was not before.

        `on_progress` is told bytes done and bytes in all, now and then.
        Raises: CheckpointError, or what `on_progress` raises.
        """
        found = self.of(config)
        if found is None:
            assert config.checkpoint, "nothing to prove"
            found = checkpoint.opened(
                Path(config.checkpoint.folder),
                config.model,
                digest=config.checkpoint.digest,
                on_progress=_now_and_then(on_progress),
            )
            self._proven[_key(config)] = found
        return found

    def of(self, config: WorkerConfig) -> Checkpoint | None:
        """The proven checkpoint of `config`, for its model; None if it is not proven."""
        found = self._proven.get(_key(config))
        return dataclasses.replace(found, model=config.model) if found else None


def _key(config: WorkerConfig) -> _Key:
    assert config.checkpoint, "a configuration without a checkpoint"
    source = config.checkpoint
    return source.folder, source.digest, ModelFacts.of(config.model)


def _now_and_then(told: Callable[[int, int], None]) -> Callable[[int, int], None]:
    last_s = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= PROGRESS_PERIOD_S:
            last_s = now_s
            told(done, total)

    return on_progress
