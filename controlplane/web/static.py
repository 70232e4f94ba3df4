"""Style, scripts and icon: a few files known by name, open to everybody, kept for good."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from controlplane.domain.errors import NotFoundError

FOLDER = Path(__file__).parent / "static"
PLOTLY = "plotly.min.js"
KINDS = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# How the bundle asks for the elements that hold the inline style of maps.
_STYLE_ELEMENT = re.compile(r'getElementById\("([0-9a-f]{64})"\)')


@dataclass(frozen=True, slots=True, kw_only=True)
class Asset:
    """One file."""

    body: bytes
    media_type: str
    digest: str


def get(name: str) -> Asset:
    """The file of that name. Raises: NotFoundError."""
    found = _plotly() if name == PLOTLY else _assets().get(name)
    if found is None:
        raise NotFoundError("file", name)
    return found


def address(name: str) -> str:
    """Where a page finds the file; another address when it changes, so it may be kept for good."""
    return f"/static/{name}?v={get(name).digest}"


@cache
def packed(name: str) -> bytes:
    """The file as gzip; plotly takes a fifth of a second, so each is packed once."""
    return gzip.compress(get(name).body, compresslevel=6, mtime=0)


@cache
def plotly_style_elements() -> str:
    """The ids of elements that plotly would fill with inline style, which our policy forbids."""
    return " ".join(sorted(set(_STYLE_ELEMENT.findall(get(PLOTLY).body.decode()))))


@cache
def _plotly() -> Asset:
    # Late: it is 5 MB, for the two pages that draw with it.
    from plotly.offline import get_plotlyjs

    return _asset(get_plotlyjs().encode(), ".js")


@cache
def _assets() -> dict[str, Asset]:
    return {
        path.name: _asset(path.read_bytes(), path.suffix)
        for path in sorted(FOLDER.iterdir())
        if path.suffix in KINDS
    }


def _asset(body: bytes, suffix: str) -> Asset:
    digest = hashlib.sha256(body).hexdigest()[:12]
    return Asset(body=body, media_type=KINDS[suffix], digest=digest)
