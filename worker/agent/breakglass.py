"""Break-glass: someone on the machine forces the fallback, whatever the control plane says.

Works offline by construction: an environment variable or a file, and undone only by removing it.
"""

from collections.abc import Mapping
from pathlib import Path

VARIABLE = "STEADYFRAME_FORCE_FALLBACK"
FILE_NAME = "force-fallback"


def is_broken(state_dir: Path, *, environment: Mapping[str, str]) -> bool:
    """Whether the fallback is forced now."""
    return environment.get(VARIABLE, "") == "1" or path(state_dir).exists()


def force(state_dir: Path) -> None:
    """Force the fallback until `clear`; harmless if it is forced already."""
    state_dir.mkdir(parents=True, exist_ok=True)
    path(state_dir).touch()


def clear(state_dir: Path) -> None:
    """Take the file away; the environment variable, if set, still forces the fallback."""
    path(state_dir).unlink(missing_ok=True)


def path(state_dir: Path) -> Path:
    """The watched file."""
    return state_dir / FILE_NAME
