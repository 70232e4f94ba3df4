"""One session in the process of a test, and how far its latents are from another's."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from tests.worker.ranks import Sum
from worker import flags
from worker.cache.ring import RingCursor, advanced
from worker.config import ModelConfig
from worker.engine.noise import Noise
from worker.engine.session import Chosen, SessionCompute
from worker.model import weights
from worker.model.transformer import Reduce, Transformer
from worker.model.weights import Weights

SEED = 7


class Drive:
    """Steps as the plans of rank 0 number them; tensors are of inference, as in a worker."""

    def __init__(  # noqa: PLR0913 - what may differ between two sessions
        self,
        model: ModelConfig,
        chosen: Mapping[str, str] | None = None,
        *,
        length: int = 5,
        prompt_seed: int = SEED,
        held: Weights | None = None,
        transformer: Transformer | None = None,
        reduce: Reduce | None = None,
        num_ranks: int = 1,
    ) -> None:
        """Run the first forward; what `chosen` leaves out is at its fallback."""
        self.model = model
        self.reduce = reduce or Sum()
        self._noise = Noise()
        self.num_steps = 0
        self.cursor = RingCursor(window=model.window, reset_period=model.reset_period)
        with torch.inference_mode():
            self.transformer = transformer or Transformer(
                model, held or weights.draw(model, rank=0, num_ranks=1), num_ranks=num_ranks
            )
            self.session = SessionCompute(
                self.transformer,
                model,
                flagged(chosen or {}),
                prompt_LD=self.prompt(length, prompt_seed),
                reduce=self.reduce,
            )

    def prompt(self, length: int, prompt_seed: int) -> Tensor:
        """What the prompt with that seed is embedded as."""
        return self._noise.of_prompt(prompt_seed, length=length, width=self.model.width)

    def step(self) -> Tensor:
        """The latent of the next step."""
        with torch.inference_mode():
            made = self.session.step(
                self.noise(), self.cursor, added_ED=self.added(), reduce=self.reduce
            )
        self.num_steps += 1
        self.cursor = advanced(self.cursor)
        return made.latent_GC

    def noise(self) -> Tensor:
        """Of the next step."""
        cells = self.model.grid[0] * self.model.grid[1]
        return self._noise.of_step(SEED, self.num_steps, cells, self.model.latent_channels)

    def added(self) -> Tensor:
        """What a viewer's features add to the extra tokens of the next frame."""
        shape = (self.model.num_extra_tokens, self.model.width)
        return self._noise.of_step(SEED + 1, self.num_steps, *shape)

    def run(self, num_steps: int) -> list[Tensor]:
        return [self.step() for _ in range(num_steps)]

    def take(self, **chosen: str) -> None:
        """Flip to `chosen` between two steps."""
        with torch.inference_mode():
            self.session.take(flagged(chosen))

    def change_prompt(self, *, length: int, prompt_seed: int) -> None:
        """As rank 0 would number it."""
        num_kept = min(self.cursor.num_frames, self.model.window - 1)
        with torch.inference_mode():
            self.session.rebuild(
                self.prompt(length, prompt_seed), num_kept=num_kept, reduce=self.reduce
            )
        begun = RingCursor(window=self.model.window, reset_period=self.model.reset_period)
        self.cursor = replace(begun, num_frames=num_kept, position=num_kept)


def flagged(chosen: Mapping[str, str]) -> Chosen:
    return Chosen.of(flags.resolved(chosen, has_demo_variants=False))


def error(ours: Tensor, theirs: Tensor) -> float:
    """Root mean square of the difference, in units of that of `theirs`; NaN is infinite."""
    found = float((ours - theirs).double().norm() / theirs.double().norm())
    return found if found == found else float("inf")  # noqa: PLR0124 - a NaN


def worst(ours: Iterable[Tensor], theirs: Iterable[Tensor]) -> float:
    """The largest error of any step."""
    return max(error(a, b) for a, b in zip(ours, theirs, strict=True))


def steps_of(model: ModelConfig) -> int:
    """Fill, wrap, two resets and a window more."""
    return 2 * model.reset_period + 2 * model.window + 1
