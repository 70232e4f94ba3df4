"""Numbers that every rank draws alike: a function of a seed and a step, and of nothing else."""

import torch
from torch import Tensor

_SEED_STRIDE = 1_000_003  # a prime, so that step k of one seed is not step 0 of a near one
_SEED_BITS = 2**63
_PROMPT_STEP = -1


class Noise:
    """One generator, seeded anew for every draw."""

    def __init__(self) -> None:
        # On the device itself: a copy from the host would make the host wait in every step.
        self._generator = torch.Generator(device=torch.get_default_device())

    def of_step(self, seed: int, step: int, *shape: int) -> Tensor:
        """The noise of step `step`, from 0, of a session with `seed`."""
        self._generator.manual_seed((seed + (step + 1) * _SEED_STRIDE) % _SEED_BITS)
        return torch.randn(shape, generator=self._generator)

    def of_prompt(self, seed: int, *, length: int, width: int) -> Tensor:
        """prompt_LD: stands for what a text encoder would make of the prompt with `seed`."""
        return self.of_step(seed, _PROMPT_STEP, length, width)
