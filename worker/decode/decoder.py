"""What every decoder is: a function from latents and a session's state to pictures and the next.

The state belongs to the session, not to the module: a decoder that keeps it to itself restarts at
every chunk, or shows one viewer the rest of another's.
"""

# ruff: noqa: N803, N815 - shape suffixes in names; the legend is below

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


# N = latents in order of time, G = cells of the grid, C = channels, Y, X = rows and columns
@dataclass(frozen=True, slots=True)
class DecoderState:
    """What one session carries from chunk to chunk; how many there are is the decoder's to say."""

    memories_CYX: tuple[Tensor, ...]


class Decoder(Protocol):
    """Weights only; the same in every process that is given the same model."""

    def new_state(self) -> DecoderState:
        """The state of a session before its first latent."""
        ...

    def frames(self, latents_NGC: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """The pictures of some latents in order, and the state after them.

        Returns: uint8 of shape [4 N, height, width, 3], contiguous; `state` is left as it was.
        Raises: ConfigError for latents of another shape.
        """
        ...
