"""The small convolutional decoder: one latent frame to four pictures, with memory of the last one.

The memory belongs to the session, not to the module: a decoder that keeps it to itself restarts at
every chunk and loses frames.
"""

# ruff: noqa: N803, N806, N815 - shape suffixes in names; the legend is below

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.config import FRAMES_PER_CHUNK, ModelConfig

_WIDTHS = (32, 32, 16)
# How much of the last latent stays in the next: neighbouring chunks of a random model would
# otherwise have nothing in common, and a video would be noise.
_MEMORY = 0.6
_CONTRAST = 2.5


@dataclass(slots=True)
class DecoderState:
    """What one session carries from chunk to chunk."""

    latent_CYX: Tensor | None = None


# N = frames of a chunk, C = channels, Y, X = rows and columns
class Decoder:
    """Random weights from the seed of the model; the same in every process."""

    def __init__(self, model: ModelConfig) -> None:
        """Draw the weights."""
        generator = torch.Generator().manual_seed(model.seed + 1)
        self._model = model
        self._kernels = []
        width = model.latent_channels
        for next_width in (*_WIDTHS, 3):
            kernel = torch.randn(next_width, width, 3, 3, generator=generator) * (9 * width) ** -0.5
            self._kernels.append(kernel.contiguous(memory_format=torch.channels_last))
            width = next_width

    def frames(self, latent_GC: Tensor, state: DecoderState) -> Tensor:
        """The pictures of one latent; moves `state` on.

        Returns: uint8 of shape [4, height, width, 3], contiguous.
        """
        num_rows, num_columns = self._model.grid
        latent_CYX = latent_GC.T.reshape(-1, num_rows, num_columns)
        last_CYX = latent_CYX if state.latent_CYX is None else state.latent_CYX
        state.latent_CYX = _MEMORY * last_CYX + (1 - _MEMORY) * latent_CYX
        ages = torch.arange(1, FRAMES_PER_CHUNK + 1) / FRAMES_PER_CHUNK
        x_NCYX = torch.lerp(last_CYX, state.latent_CYX, ages.view(-1, 1, 1, 1))
        return self._painted(x_NCYX.contiguous(memory_format=torch.channels_last))

    def _painted(self, x_NCYX: Tensor) -> Tensor:
        for kernel in self._kernels[:-1]:
            x_NCYX = F.silu(F.conv2d(x_NCYX, kernel, padding=1))
            x_NCYX = x_NCYX / (x_NCYX.std() + 1e-6)
            x_NCYX = F.interpolate(x_NCYX, scale_factor=2.0, mode="bilinear")
        x_NCYX = torch.tanh(_CONTRAST * F.conv2d(x_NCYX, self._kernels[-1], padding=1))
        # Three doublings are done; the rest of the way is smooth, which keeps the JPEGs small.
        rest = self._model.pixels_per_token / 8
        x_NCYX = F.interpolate(x_NCYX.add(1).mul(127.5), scale_factor=rest, mode="bilinear")
        return x_NCYX.to(torch.uint8).permute(0, 2, 3, 1).contiguous()
