"""A decoder with the shape of production: one latent frame to four pictures, causal in time.

Each memory block sees its input and that of the frame before. What it saw last is the session's,
not the module's: a decoder that keeps it to itself restarts at every chunk and loses frames.
Nothing here looks at two frames in any other way, so pictures do not depend on how latents are
batched.
"""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is in `worker.decode.decoder`

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.config import FRAMES_PER_CHUNK, ModelConfig
from worker.decode import shape
from worker.decode.decoder import DecoderState

# Three doublings make 8 of the pixels of a cell, the last kernel paints the rest as squares.
_GROWTHS = (1, 2, 2)  # frames from one, stage by stage: 4 in all
_NUM_MEMORIES = 2  # memory blocks a stage
_DOUBLED = 2 ** len(_GROWTHS)
_GAIN = 2.0  # of a rectifier: half of what comes in is cut off


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    first: Tensor  # over this frame and the one before
    second: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    memories: tuple[_Memory, ...]
    growth: Tensor  # 1 x 1: one frame to one or two
    out: Tensor


class StreamingDecoder:
    """Random weights from the seed of the model; no state of its own."""

    def __init__(self, model: ModelConfig) -> None:
        """Draw the weights."""
        widths = model.decoder_widths
        self._generator = torch.Generator().manual_seed(model.seed + 2)
        self._model = model
        self._widths = widths
        self._square = model.pixels_per_token // _DOUBLED
        self._in = self._kernel(model.latent_channels, widths[0])
        nexts = (*widths[1:], widths[-1])
        self._stages = tuple(
            self._stage(wide, growth=growth, next_wide=next_wide)
            for wide, growth, next_wide in zip(widths, _GROWTHS, nexts, strict=True)
        )
        self._out = self._kernel(widths[-1], 3 * self._square**2)

    def new_state(self) -> DecoderState:
        """The state of a session before its first latent: the last input of every memory block."""
        rows, columns = self._model.grid
        return DecoderState(
            tuple(
                torch.zeros(wide, rows << stage, columns << stage)
                for stage, wide in enumerate(self._widths)
                for _ in range(_NUM_MEMORIES)
            )
        )

    def frames(self, latents_NGC: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """See `decoder.Decoder.frames`."""
        colours_NCYX, after = self.colours(latents_NGC, state)
        pictures = colours_NCYX.mul(255).round().to(torch.uint8)
        return pictures.permute(0, 2, 3, 1).contiguous(), after

    def colours(self, latents_NGC: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        """As `frames`, but red, green and blue in [0, 1] of shape [4 N, 3, height, width]."""
        x_NCYX = _convolved(shape.laid_out(latents_NGC, self._model), self._in)
        seen: list[Tensor] = []
        for stage in self._stages:
            for memory in stage.memories:
                before_CYX = state.memories_CYX[len(seen)]
                seen.append(x_NCYX[-1].clone() if len(x_NCYX) else before_CYX)
                x_NCYX = _remembered(x_NCYX, before_CYX, memory)
            x_NCYX = F.interpolate(x_NCYX, scale_factor=2.0, mode="nearest")
            x_NCYX = _grown(x_NCYX, stage.growth)
            x_NCYX = F.relu(_convolved(x_NCYX, stage.out))
        painted_NCYX = F.pixel_shuffle(_convolved(x_NCYX, self._out), self._square)
        return torch.sigmoid(painted_NCYX), DecoderState(tuple(seen))

    def parameters(self) -> tuple[Tensor, ...]:
        """All weights."""
        stages = tuple(
            kernel
            for stage in self._stages
            for kernel in (
                *(each for memory in stage.memories for each in (memory.first, memory.second)),
                stage.growth,
                stage.out,
            )
        )
        return (self._in, *stages, self._out)

    def _stage(self, wide: int, *, growth: int, next_wide: int) -> _Stage:
        return _Stage(
            memories=tuple(
                _Memory(first=self._kernel(2 * wide, wide), second=self._kernel(wide, wide))
                for _ in range(_NUM_MEMORIES)
            ),
            growth=self._kernel(wide, growth * wide, side=1),
            out=self._kernel(wide, next_wide),
        )

    def _kernel(self, wide: int, next_wide: int, *, side: int = 3) -> Tensor:
        drawn: Tensor = torch.randn(next_wide, wide, side, side, generator=self._generator)
        return drawn * math.sqrt(_GAIN / (wide * side**2))


def _convolved(x_NCYX: Tensor, kernel: Tensor) -> Tensor:
    out_NCYX: Tensor = F.conv2d(x_NCYX, kernel, padding=kernel.shape[-1] // 2)
    return out_NCYX


def _remembered(x_NCYX: Tensor, before_CYX: Tensor, memory: _Memory) -> Tensor:
    """Each frame with the one before it; the first with what the session saw last."""
    past_NCYX = torch.cat([before_CYX[None], x_NCYX])[:-1]
    inner_NCYX = F.relu(_convolved(torch.cat([x_NCYX, past_NCYX], dim=1), memory.first))
    out_NCYX: Tensor = F.relu(x_NCYX + _convolved(inner_NCYX, memory.second))
    return out_NCYX * math.sqrt(0.5)


def _grown(x_NCYX: Tensor, kernel: Tensor) -> Tensor:
    """Every frame as one or more in its place, in order of time."""
    _, wide, rows, columns = x_NCYX.shape
    return _convolved(x_NCYX, kernel).reshape(-1, wide, rows, columns)


assert _GROWTHS[0] * _GROWTHS[1] * _GROWTHS[2] == FRAMES_PER_CHUNK, "a chunk has other frames"
