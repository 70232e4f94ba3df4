"""The configuration file of a worker: one JSON object; a refusal names the key and the value."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from controlplane.contract.messages import Name
from worker import config as engine_config
from worker import flags, profiles
from worker.agent.config import AgentConfig
from worker.config import MIB, CheckpointSource, Injection, WorkerConfig
from worker.model import manifest
from worker.model.manifest import CheckpointError

Positive = Annotated[float, Field(gt=0, le=1e6)]


class SettingsError(Exception):
    """The configuration file cannot be used; the message names key, value and what is allowed."""


class FaultSettings(BaseModel):
    """A fault to inject, for drills; as `worker.config.Injection`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: engine_config.InjectedFault
    rank: Annotated[int, Field(ge=0)]
    session_step: Annotated[int, Field(ge=0)] = 2
    launch: Annotated[int, Field(ge=0)] = 0


class CheckpointSettings(BaseModel):
    """Where the weights are; as `worker.config.CheckpointSource`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: Path
    # Of the manifest. None: that of the manifest as it stands when the worker starts.
    digest: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None


class Settings(BaseModel):
    """Everything a worker is told at start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fleet: Name
    worker: Name
    hardware: Name = "cpu"
    preset: Literal["tiny", "demo"]
    url: Annotated[str, Field(pattern=r"^https?://[^@]+$")]
    token_file: Path | None = None
    state_dir: Path
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 0  # 0: any
    window_s: Positive = 5.0
    rate_fps: Annotated[float, Field(gt=0, le=1000)] = 25.0
    flush_s: Positive = 5.0  # how long a stop may wait for the last records to be taken
    fallback: dict[Name, Name] = {}  # what it leaves out is at the fallback of the build
    memory_limit_mib: Annotated[int, Field(ge=1)] | None = None  # a rank, above its warm level
    # Name of the weights, for the fingerprint; that of a checkpoint is its digest, told or not.
    weights: Annotated[str, Field(max_length=200)] = ""
    checkpoint: CheckpointSettings | None = None  # none: weights drawn from the preset's seed
    faults: list[FaultSettings] = []

    def worker_config(self) -> WorkerConfig:
        """What the engine is built from.

        Raises: ConfigError.
        """
        preset = engine_config.PRESETS[self.preset]()
        changes: dict[str, Any] = {
            "faults": tuple(Injection(**fault.model_dump()) for fault in self.faults),
            "compiler_folder": str(self.state_dir / "compiler"),
        }
        if self.checkpoint is not None:
            folder = str(self.checkpoint.folder.absolute())
            changes["checkpoint"] = CheckpointSource(folder=folder, digest=self.checkpoint.digest)
        if self.memory_limit_mib is not None:
            changes["memory_headroom_bytes"] = self.memory_limit_mib * MIB
        return dataclasses.replace(preset, **changes)

    def agent_config(self) -> AgentConfig:
        """What the agent is told.

        Raises: ValueError naming the flag of the fallback that this build cannot run.
        """
        has_demo_variants = self.worker_config().has_demo_variants
        weights = (self.checkpoint and self.checkpoint.digest) or self.weights
        stack = {"weights": weights} if weights else {}
        return AgentConfig(
            fleet=self.fleet,
            worker=self.worker,
            hardware=self.hardware,
            url=self.url,
            token_file=self.token_file,
            state_dir=self.state_dir,
            fallback={**profiles.of(self.hardware).fallback, **self.fallback},
            capabilities={
                name: flag.allowed(has_demo_variants=has_demo_variants)
                for name, flag in flags.REGISTRY.items()
            },
            stack={**stack, "preset": self.preset},
            window_s=self.window_s,
        )


_NESTED: dict[str, type[BaseModel]] = {"checkpoint": CheckpointSettings, "faults": FaultSettings}


def load(path: Path) -> Settings:
    """The settings in the file at `path`, all of them checked.

    Raises: SettingsError.
    """
    try:
        settings = _with_digest(Settings.model_validate(json.loads(path.read_text())))
        settings.agent_config()
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}"
        raise SettingsError(message) from error
    except json.JSONDecodeError as error:
        message = f"{path} is not JSON: {error}"
        raise SettingsError(message) from error
    except ValidationError as error:
        raise SettingsError(_sentences(error)) from error
    except ValueError as error:
        raise SettingsError(str(error)) from error
    return settings


def _with_digest(settings: Settings) -> Settings:
    """The same, with the digest of the checkpoint that stands in the folder now.

    From here on it is the only one that this worker runs: the fingerprint names it.

    Raises: SettingsError.
    """
    told = settings.checkpoint
    if told is None:
        return settings
    try:
        _, digest = manifest.read(told.folder)
    except CheckpointError as error:
        message = f"checkpoint.folder is {str(told.folder)!r}: {error}"
        raise SettingsError(message) from error
    if told.digest not in {None, digest}:
        message = f"checkpoint.digest is {told.digest!r}, allowed: that of the folder, {digest!r}"
        raise SettingsError(message)
    if settings.weights not in {"", digest}:
        message = f"weights is {settings.weights!r}, allowed: the checkpoint's digest {digest!r}"
        raise SettingsError(message)
    pinned = told.model_copy(update={"digest": digest})
    return settings.model_copy(update={"checkpoint": pinned})


def _sentences(error: ValidationError) -> str:
    return "; ".join(_sentence(dict(each)) for each in error.errors(include_url=False))


def _sentence(problem: dict[str, Any]) -> str:
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "missing":
        return f"{key} is missing"
    if problem["type"] == "extra_forbidden":
        model = _NESTED.get(str(problem["loc"][0]), Settings)
        allowed = (model if len(problem["loc"]) > 1 else Settings).model_fields
        return f"{key} is not a key, allowed: {', '.join(allowed)}"
    return f"{key} is {problem['input']!r}: {problem['msg']}"
