"""Ranks as threads of the process of a test: the sum of their output products."""

import threading
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor


class ThreadSum:
    """An all-reduce between threads of this process."""

    def __init__(self, num_ranks: int) -> None:
        self._barrier = threading.Barrier(num_ranks, timeout=20)
        self._partials: dict[int, Tensor] = {}

    def summed(self, partial: Tensor, *, rank: int) -> Tensor:
        self._partials[rank] = partial
        self._barrier.wait()
        total = torch.stack([self._partials[r] for r in sorted(self._partials)]).sum(0)
        self._barrier.wait()
        return total


@dataclass(frozen=True, slots=True)
class Sum:
    """The end of one rank; without a `ThreadSum` there is only one."""

    rank: int = 0
    total: ThreadSum | None = None

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:  # noqa: N803 - as the port
        del is_first_forward
        partial = F.linear(joined_TK, weight_DK)
        return self.total.summed(partial, rank=self.rank) if self.total else partial
