"""What a rank may allocate: a real limit of the system, which torch meets as an error it can tell.

No torch.
"""

import resource
from pathlib import Path


def set_above_now(headroom_bytes: int) -> int:
    """Allow `headroom_bytes` above the level of now. Returns: that limit as resident bytes.

    The system limits mapped private memory, a sample tells resident memory: the same head-room
    above the level of each, so that the two can be compared by whoever watches them.
    """
    limit = _status_bytes("VmData") + headroom_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))
    return resident_bytes() + headroom_bytes


def lift() -> None:
    """Allow memory again, so that the reason for running out of it can be told."""
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def resident_bytes() -> int:
    """Of this process, now."""
    return _status_bytes("VmRSS")


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    message = f"/proc/self/status has no {key}"
    raise RuntimeError(message)
