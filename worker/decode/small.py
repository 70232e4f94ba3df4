"""The small decoder: a few convolutions and a smooth enlargement, for pictures on few cores.

A 256 x 384 chunk of the demo takes it 6 ms of one core and 38 kB of JPEG; the streaming decoder at
its narrowest takes 16 ms and 221 kB, which three workers do not have on two cores. Its pictures are
also a video, though the model is random: each latent is blended into the last.
"""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is in `worker.decode.decoder`

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.config import FRAMES_PER_CHUNK, ModelConfig
from worker.decode import shape
from worker.decode.decoder import DecoderState

_WIDTHS = (32, 32, 16)
# How much of the last latent stays in the next: neighbouring chunks of a random model would
# otherwise have nothing in common, and a video would be noise.
_MEMORY = 0.6
_CONTRAST = 2.5


class SmallDecoder:
    """Random weights from the seed of the model; no state of its own."""

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

    def new_state(self) -> DecoderState:
        """The state of a session before its first latent: nothing has been seen."""
        return DecoderState(memories_CYX=())

    def frames(self, latents_NGC: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """See `decoder.Decoder.frames`."""
        chunks = [torch.empty(0, *self._model.frame_size, 3, dtype=torch.uint8)]
        for latent_CYX in shape.laid_out(latents_NGC, self._model):
            (last_CYX,) = state.memories_CYX or (latent_CYX,)
            seen_CYX = _MEMORY * last_CYX + (1 - _MEMORY) * latent_CYX
            chunks.append(self._chunk(last_CYX, seen_CYX))
            state = DecoderState(memories_CYX=(seen_CYX,))
        return torch.cat(chunks), state

    def _chunk(self, last_CYX: Tensor, seen_CYX: Tensor) -> Tensor:
        """The way from what was seen last to what is seen now, in four pictures."""
        ages = torch.arange(1, FRAMES_PER_CHUNK + 1) / FRAMES_PER_CHUNK
        x_NCYX = torch.lerp(last_CYX, seen_CYX, ages.view(-1, 1, 1, 1))
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
