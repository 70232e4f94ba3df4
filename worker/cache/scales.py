"""One FP8 scale for each block and head, set once a session; and the counts of what they clamped.

Keys are measured by the radius of their pairs: no turn changes it, so neither a new position nor a
reset can carry a calibrated key out of range. e4m3 is a float, so headroom costs no precision.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from worker.cache.contents import Contents
from worker.config import ConfigError
from worker.ops import fp8
from worker.ops.late import LateCopies

# Rounding to e4m3 makes a number at most 1/16 larger: 416 becomes at most 442, and after another
# turn both channels of a pair still lie below 448.
KEY_RADIUS = 416.0
DEFAULT_HEADROOM = 4.0
# Up to 256 times costs nothing for numbers of a normal range; far beyond they become subnormal.
_MOST_HEADROOM = 256.0


class CalibrationError(ValueError):
    """The contents cannot set a scale."""


# B = blocks, H = heads of this rank, T = tokens, D = head width
@dataclass(frozen=True, slots=True, kw_only=True)
class CacheScales:
    """The scales of a whole cache. Tensors: a scale that is a Python number is compiled in."""

    key_BH: Tensor
    value_BH: Tensor

    def of_block(self, block: int) -> fp8.HeadScales:
        """The scales of one block, as views."""
        return fp8.HeadScales(key_H=self.key_BH[block], value_H=self.value_BH[block])


def calibrated(contents: Contents, *, headroom: float = DEFAULT_HEADROOM) -> CacheScales:
    """Scales that leave room for `headroom` times the largest key and value in `contents`.

    A head of zeros has no size of its own and gets the scale of numbers up to 1. Waits for the
    device: call it once a session, between two steps.

    Raises:
        ConfigError: the headroom is not in 1 to 256.
        CalibrationError: nothing to measure, or a key or value that is no finite number.
    """
    if not 1.0 <= headroom <= _MOST_HEADROOM:
        raise ConfigError("headroom", headroom, f"1 to {_MOST_HEADROOM:g}")
    measured = [part for part in (contents.prefix, *contents.frames) if part.k_BHTD.shape[2]]
    if not measured:
        raise CalibrationError("the cache is empty; write the prefix or a frame first")
    radius_BH = _largest(_pair_radius(part.k_BHTD) for part in measured)
    value_BH = _largest(part.v_BHTD.abs() for part in measured)
    _check_finite("keys", radius_BH)
    _check_finite("values", value_BH)
    return CacheScales(
        key_BH=_or_one(radius_BH) * (headroom / KEY_RADIUS),
        value_BH=_or_one(value_BH) * (headroom / fp8.LARGEST),
    )


def _pair_radius(k_BHTD: Tensor) -> Tensor:
    return torch.hypot(k_BHTD[..., 0::2].float(), k_BHTD[..., 1::2].float())


def _largest(sizes: Iterable[Tensor]) -> Tensor:
    """The largest of each block and head; a NaN anywhere stays one."""
    return torch.stack([size.float().amax(dim=(-2, -1)) for size in sizes]).amax(dim=0)


def _check_finite(what: str, largest_BH: Tensor) -> None:
    bad = torch.nonzero(~largest_BH.isfinite()).tolist()
    if bad:
        block, head = bad[0]
        message = (
            f"{what} of block {block}, head {head} reach {largest_BH[block, head].item()} "
            f"({len(bad)} such heads); a scale needs finite numbers"
        )
        raise CalibrationError(message)


def _or_one(largest_BH: Tensor) -> Tensor:
    return torch.where(largest_BH > 0, largest_BH, torch.ones_like(largest_BH))


class ClampCounts:
    """Counts of clamped numbers, kept on the device and read late, so that no step waits for them.

    What is read was copied in the call before the last.
    """

    def __init__(self, *, num_blocks: int, num_heads: int, device: torch.device) -> None:
        # One after the other in memory, so that a block's counts look alike whatever their number.
        blocks_B2H = torch.zeros((num_blocks, 2, num_heads), dtype=torch.int64, device=device)
        self.on_device_2BH = blocks_B2H.transpose(0, 1)
        self._copies: LateCopies | None = None

    def publish(self) -> None:
        """Start a copy of the counts to the host; call once a step, it waits for nothing."""
        if self._copies is None:  # memory that a device can write to is not had for nothing
            self._copies = LateCopies(self.on_device_2BH)
        self._copies.start()

    def late(self) -> Tensor | None:
        """Keys and values clamped so far, of each block and head, as of the call before the last.

        Returns: [2, B, H]; nothing while there is no copy that is surely done. Never waits.
        """
        return None if self._copies is None else self._copies.read()
