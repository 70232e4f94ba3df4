"""Attention over every kept frame in float64, from the definition: complex turns, a plain softmax.

Shares no code with the worker. Nothing is stored turned, nothing is rounded, nothing is a ring.
"""

# ruff: noqa: N803 - shape suffixes in names; the legend is below

from dataclasses import dataclass, field

import torch
from torch import Tensor

from worker.config import ModelConfig


# H = heads, T = tokens, D = head width
def turned(x_HTD: Tensor, places_T3: Tensor, split: tuple[int, int, int]) -> Tensor:
    """Pairs of channels as complex numbers, times e^(i angle); float64."""
    angles = []
    for axis, channels in enumerate(split):
        speeds = torch.tensor(
            [10_000.0 ** (-(2 * pair) / channels) for pair in range(channels // 2)],
            dtype=torch.float64,
        )
        angles.append(torch.outer(places_T3[:, axis].double(), speeds))
    phases = torch.cat(angles, dim=1)
    pairs = torch.view_as_complex(x_HTD.double().reshape(x_HTD.shape[0], *phases.shape, 2))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(phases), phases)).flatten(-2)


def normed(x_HTD: Tensor) -> Tensor:
    wide = x_HTD.double()
    return wide / (wide.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt()


def frame_places(model: ModelConfig, time: int) -> Tensor:
    rows, columns = model.grid
    cells = [(time, row, column) for row in range(rows) for column in range(columns)]
    return torch.tensor(cells + [(time, rows, extra) for extra in range(model.num_extra_tokens)])


def prefix_places(length: int) -> Tensor:
    return torch.tensor([(0, 0, token) for token in range(length)]).view(length, 3)


@dataclass(slots=True)
class Reference:
    """What one block should see. A frame is (keys as they came, values)."""

    model: ModelConfig
    prefix: tuple[Tensor, Tensor]  # keys already normed
    frames: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def attended(self, query: Tensor, *, base: int) -> Tensor:
        """Attention of a query that belongs to the newest frame."""
        newest = len(self.frames) - 1
        kept = range(max(0, newest + 1 - self.model.window), newest + 1)
        split = self.model.rope_split
        keys = [turned(self.prefix[0], prefix_places(self.prefix[0].shape[1]), split)]
        values = [self.prefix[1].double()]
        for number in kept:
            places = frame_places(self.model, number - base)
            keys.append(turned(normed(self.frames[number][0]), places, split))
            values.append(self.frames[number][1].double())
        here = turned(normed(query), frame_places(self.model, newest - base), split)
        scores = here @ torch.cat(keys, 1).transpose(1, 2) / self.model.head_width**0.5
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        out: Tensor = weights / weights.sum(-1, keepdim=True) @ torch.cat(values, 1)
        return out


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Root mean square of the difference, in units of that of `expected`; NaN stays NaN."""
    difference = actual.double() - expected.double()
    return float(difference.pow(2).mean().sqrt() / expected.double().pow(2).mean().sqrt())
