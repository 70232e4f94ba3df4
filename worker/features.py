"""Audio and control features of a step as bytes: what a viewer sends and every rank is told.

Whole numbers of eight bits, so that all ranks compute with the same value bit for bit, whatever
their float arithmetic. Pure; must not import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

NUM_EACH = 16
NUM_BYTES = 2 * NUM_EACH
STEPS = 127  # from 0 to 1; -128 is never used, so that the range is even


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Up to 16 numbers of each kind from -1 to 1; those left out are 0."""

    audio: Sequence[float] = ()
    control: Sequence[float] = ()

    def packed(self) -> bytes:
        """16 signed bytes of audio, then 16 of control.

        Raises: ValueError for more than 16 of a kind or one out of range.
        """
        return _packed(self.audio) + _packed(self.control)


NONE = bytes(NUM_BYTES)


def _packed(values: Sequence[float]) -> bytes:
    if len(values) > NUM_EACH or not all(-1 <= value <= 1 for value in values):
        message = f"features are {list(values)!r}; allowed: up to {NUM_EACH} numbers from -1 to 1"
        raise ValueError(message)
    whole = [round(value * STEPS) for value in values]
    return bytes(value % 256 for value in whole) + bytes(NUM_EACH - len(whole))
