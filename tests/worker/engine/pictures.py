"""How far the pictures of two sessions are from each other, as a viewer would see it."""

import io
from collections.abc import Sequence

from PIL import Image, ImageChops, ImageStat

from worker.engine.api import Chunk


def distance(ours: Sequence[Chunk], theirs: Sequence[Chunk]) -> float:
    """The largest mean difference of any frame's pixels, of 255 levels."""
    assert [chunk.step for chunk in ours] == [chunk.step for chunk in theirs], "a chunk is missing"
    return max(
        _distance(one, other)
        for chunk, like in zip(ours, theirs, strict=True)
        for one, other in zip(chunk.frames, like.frames, strict=True)
    )


def _distance(ours: bytes, theirs: bytes) -> float:
    if ours == theirs:
        return 0.0
    first, second = (Image.open(io.BytesIO(jpeg)) for jpeg in (ours, theirs))
    return max(ImageStat.Stat(ImageChops.difference(first, second)).mean)
