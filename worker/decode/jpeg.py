"""Pictures as JPEG."""

# ruff: noqa: N803 - shape suffixes in names; the legend is below

import ctypes
import io

from PIL import Image
from torch import Tensor


def encoded(frames_NYX3: Tensor, *, quality: int) -> tuple[bytes, ...]:
    """Each picture of a contiguous uint8 tensor [N, height, width, 3] as one JPEG."""
    return tuple(_encoded(frame_YX3, quality) for frame_YX3 in frames_NYX3)


def _encoded(frame_YX3: Tensor, quality: int) -> bytes:
    height, width, _ = frame_YX3.shape
    # `Tensor.numpy` would bring a dependency for one copy of memory.
    pixels = ctypes.string_at(frame_YX3.data_ptr(), frame_YX3.numel())
    out = io.BytesIO()
    Image.frombuffer("RGB", (width, height), pixels, "raw", "RGB", 0, 1).save(
        out, "JPEG", quality=quality
    )
    return out.getvalue()
