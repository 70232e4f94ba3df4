"""What the probes drive: one rank of a small model, alone in this process, under given flags.

The model has the heads of its preset (head width, split of the turn, element of the cache) and
few of them, so that a whole cycle of resets takes seconds.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.model.transformer`

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache

import torch
from torch import Tensor

from worker.cache.ring import RingCursor, advanced
from worker.config import TINY_EDGE_MODEL, ModelConfig
from worker.engine.noise import Noise
from worker.engine.session import Chosen, SessionCompute
from worker.model import weights
from worker.model.execution import EAGER, Execution
from worker.model.transformer import OwnPart, Reduce, Transformer
from worker.model.weights import Weights
from worker.shapes import FULL_MODEL

# Production's heads, window, period and element; two blocks, so that an error of the first is in
# the keys of the second; 7 tokens a frame, odd and prime like 757.
FULL_CUT_MODEL = replace(
    FULL_MODEL,
    num_blocks=2,
    width=3 * FULL_MODEL.head_width,
    num_heads=3,
    mlp_width=4 * 3 * FULL_MODEL.head_width,
    grid=(2, 3),
    num_extra_tokens=1,
    latent_channels=16,
    first_forward_bounds=(1, 64),
)
# The presets of the CPU differ in size alone, so the one with the shortest cycle stands for all;
# with room for as many lengths of a prompt as are tried.
_EDGE_MODEL = replace(TINY_EDGE_MODEL, first_forward_bounds=(1, 64))
MODELS: Mapping[str, ModelConfig] = {
    **dict.fromkeys(("tiny-edge", "tiny", "demo"), _EDGE_MODEL),
    "full": FULL_CUT_MODEL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A model under flags, and how its sessions are begun."""

    model: ModelConfig
    flags: Mapping[str, str]  # a full set
    chosen_of: Callable[[Mapping[str, str]], Chosen] = Chosen.of
    session: type[SessionCompute] = SessionCompute
    reduce: Reduce = field(default_factory=OwnPart)
    execution: Execution = EAGER


class Drive:
    """One session of a subject, step after step, from the noise of a seed."""

    def __init__(
        self, subject: Subject, *, seed: int, length: int, flags: Mapping[str, str] | None = None
    ) -> None:
        """Run the first forward over `length` prompt tokens; `flags`: other than the subject's."""
        model = subject.model
        self._subject, self._seed, self._noise = subject, seed, Noise()
        self.cursor = RingCursor.begun(model)
        with torch.inference_mode():
            self._session = subject.session(
                Transformer(
                    model,
                    _weights(model, str(torch.get_default_device())),
                    num_ranks=1,
                    execution=subject.execution,
                ),
                model,
                subject.chosen_of(subject.flags if flags is None else flags),
                prompt_LD=self._noise.of_prompt(seed, length=length, width=model.width),
                reduce=subject.reduce,
            )

    @property
    def session(self) -> SessionCompute:
        """What is driven."""
        return self._session

    def step(self) -> Tensor:
        """latent_GC of the next frame; its noise is a function of the seed and its number alone."""
        model = self._subject.model
        num_cells = model.grid[0] * model.grid[1]
        noise_GC = self._noise.of_step(
            self._seed, self.cursor.num_frames, num_cells, model.latent_channels
        )
        with torch.inference_mode():
            made = self._session.step(noise_GC, self.cursor, reduce=self._subject.reduce)
        self.cursor = advanced(self.cursor)
        return made.latent_GC

    def take(self, flags: Mapping[str, str]) -> None:
        """Go on under `flags`, a full set."""
        with torch.inference_mode():
            self._session.take(self._subject.chosen_of(flags))


@cache
def _weights(model: ModelConfig, device: str) -> Weights:
    del device  # where they are made, and so a part of their name
    with torch.inference_mode():
        return weights.draw(model, rank=0, num_ranks=1)
