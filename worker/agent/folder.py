"""The worker's folder: one agent at a time."""

import fcntl
import os
from pathlib import Path

LOCK_NAME = "agent.lock"


class StateDirInUseError(Exception):
    """Two agents on one folder would mix their records."""


def hold(state_dir: Path) -> int:
    """A file descriptor that holds the folder for this process until it is closed.

    Raises: StateDirInUseError.
    """
    state_dir.mkdir(parents=True, exist_ok=True)
    file = os.open(state_dir / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(file)
        message = f"{state_dir} is in use by another agent: give each worker its own"
        raise StateDirInUseError(message) from error
    return file
