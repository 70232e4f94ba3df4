"""Numbers that every rank draws alike: a function of a seed and a step, and of nothing else."""

import torch
from torch import Tensor

_SEED_STRIDE = 1_000_003  # a prime, so that step k of one seed is not step 0 of a near one
# torch seeds a generator of the CPU with the lower 32 bits alone. The largest prime below 2**32
# brings the upper ones in: far seeds do not draw alike, nor do any two steps of a session.
_NUM_SEEDS = 4_294_967_291
_PROMPT_STEP = -1


class Noise:
    """One generator, seeded anew for every draw."""

    def __init__(self) -> None:
        # On the device itself: a copy from the host would make the host wait in every step.
        self._generator = torch.Generator(device=torch.get_default_device())

    def of_step(self, seed: int, step: int, *shape: int) -> Tensor:
        """The noise of step `step`, from 0, of a session with `seed`."""
        self._generator.manual_seed((seed + (step + 1) * _SEED_STRIDE) % _NUM_SEEDS)
        return torch.randn(shape, generator=self._generator)

    def of_prompt(self, seed: int, *, length: int, width: int) -> Tensor:
        """prompt_LD: stands for what a text encoder would make of the prompt with `seed`."""
        return self.of_step(seed, _PROMPT_STEP, length, width)
