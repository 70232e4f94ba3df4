"""Small files that are read whole or not at all."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Put `content` in `path` at once: a reader or a crash sees the old file or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
