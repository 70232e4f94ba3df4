"""Small files that are read whole or not at all."""

import os
from pathlib import Path


def replace(path: Path, content: bytes, *, is_synced: bool = True) -> None:
    """Put `content` in `path` at once: a reader or a dead process leaves the old file or the new.

    Without `is_synced` the same is not promised for a machine that loses power; but nobody who
    writes a record, in the middle of a stream, has to wait for the disk.
    """
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        if is_synced:
            file.flush()
            os.fsync(file.fileno())
    temporary.replace(path)
