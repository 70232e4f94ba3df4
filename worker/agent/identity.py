"""Who reports: the worker's name, this life of its processes, and the stack they run on.

Reads installed versions without importing what they name: torch stays out of the agent.
"""

import platform
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from controlplane.contract import vocabulary

# What changes the numbers a kernel computes or the time it takes.
STACK_PACKAGES = ("torch", "triton", "nvidia-nccl-cu12", "nvidia-nccl-cu13", "steadyframe")
DRIVER_VERSION = Path("/sys/module/nvidia/version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """One life of one worker, as every record names it."""

    fleet: str
    worker: str
    hardware: str
    incarnation: str
    stack: str  # digest of the parts


def new_id(randomness: random.Random) -> str:
    """A fresh identifier in the form of a version 4 UUID."""
    return str(uuid.UUID(int=randomness.getrandbits(128), version=4))


def stack_parts(extra: Mapping[str, str]) -> dict[str, str]:
    """Readable parts of the stack fingerprint of this machine, with `extra` from the server."""
    parts = {"python": platform.python_version(), "platform": platform.platform()[:200]}
    for package in STACK_PACKAGES:
        version = _installed_version(package)
        if version is not None:
            parts[package] = version
    if DRIVER_VERSION.exists():
        parts["nvidia-driver"] = DRIVER_VERSION.read_text().strip()[:200]
    return {**parts, **extra}


def stack_digest(parts: Mapping[str, str]) -> str:
    """Fingerprint of the parts, as both sides compute it."""
    return vocabulary.stack_digest(parts)


def _installed_version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
