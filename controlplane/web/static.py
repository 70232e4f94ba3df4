"""Style, script and icon: a few files known by name, open to everybody, kept for good."""

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from controlplane.domain.errors import NotFoundError

FOLDER = Path(__file__).parent / "static"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    body: bytes
    media_type: str
    digest: str


def get(name: str) -> Asset:
    """The file of that name. Raises: NotFoundError."""
    found = _assets().get(name)
    if found is None:
        raise NotFoundError("file", name)
    return found


def address(name: str) -> str:
    """Where a page finds the file; another address when it changes, so it may be kept for good."""
    return f"/static/{name}?v={get(name).digest}"


@cache
def _assets() -> dict[str, Asset]:
    return {
        path.name: Asset(
            body=path.read_bytes(),
            media_type=KINDS[path.suffix],
            digest=hashlib.sha256(path.read_bytes()).hexdigest()[:12],
        )
        for path in sorted(FOLDER.iterdir())
        if path.suffix in KINDS
    }
