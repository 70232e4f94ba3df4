"""Every variant of the all-reduce behind the flag `fused_allreduce`, with one signature.

`ProcessGroupReduce` is the fallback and the oracle. Each variant accounts for the bytes that its
own code has allocated, so that a rollback can be verified.
"""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is below

import ctypes
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from torch import Tensor

from worker.config import WorkerConfig
from worker.parallel import group, slots
from worker.parallel.board import Line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReducePlace:
    """What a variant may use: the line on the board, the slots, and the configuration."""

    line: Line
    slots: slots.SlotPlace
    config: WorkerConfig


# T = tokens of this forward, D = width of the model, K = inputs of this rank
class AllReduce(ABC):
    """Sums the partial output products of a block over all ranks, and counts its own time."""

    def __init__(self, place: ReducePlace) -> None:
        self._line = place.line
        self.spent_s = 0.0  # since the last `hold_step`

    def __call__(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor:
        """Replace `partial_TD` by its sum over all ranks and return it. Raises: PeerLostError."""
        self._line.enter_collective()
        begun_s = time.perf_counter()
        total_TD = self._summed(partial_TD, is_first_forward=is_first_forward)
        self.spent_s += time.perf_counter() - begun_s
        return total_TD

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        """The row-parallel output product of a block, summed over all ranks: total_TD.

        Raises: PeerLostError.
        """
        return self(F.linear(joined_TK, weight_DK), is_first_forward=is_first_forward)

    @abstractmethod
    def _summed(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor: ...

    def hold_step(self, elapsed_s: float) -> float:
        """End a step that took `elapsed_s` so far; returns the seconds of it spent in here."""
        spent_s, self.spent_s = self.spent_s, 0.0
        return min(spent_s, elapsed_s)

    @property
    def num_bytes(self) -> int:
        """Bytes allocated by this variant and not freed."""
        return 0

    @property
    def retained_by_length(self) -> Mapping[int, int]:
        """First-forward length -> bytes kept for it."""
        return {}

    @abstractmethod
    def release(self) -> None:
        """Free everything; call on every rank at the same step."""


class ProcessGroupReduce(AllReduce):
    """The fallback: one collective of the process group for each call."""

    def _summed(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor:
        del is_first_forward  # every shape goes the same way
        return group.sum_(partial_TD)

    def release(self) -> None:
        """Nothing was allocated."""


class FusedSteadyReduce(AllReduce):
    """Slots for the steady shape only; a first forward of any length takes the process group."""

    def __init__(self, place: ReducePlace) -> None:
        """Map the slots. Raises: OSError without memory."""
        super().__init__(place)
        model = place.config.model
        self._exchange = slots.SlotExchange(
            place.slots, num_floats=model.tokens_per_frame * model.width
        )

    def _summed(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor:
        if is_first_forward:
            return group.sum_(partial_TD)
        return self._exchange.sum_(partial_TD)

    @property
    def num_bytes(self) -> int:
        """The slots, mapped once."""
        return self._exchange.num_bytes

    def release(self) -> None:
        """Give the slots back."""
        self._exchange.close()


class FusedSmallTilesReduce(FusedSteadyReduce):
    """As `FusedSteadyReduce`, but slow: for demonstrations of a canary that must fail."""

    def __init__(self, place: ReducePlace) -> None:
        """Map the slots. Raises: OSError without memory."""
        super().__init__(place)
        self._floor_s = place.config.small_tiles_floor_s

    def hold_step(self, elapsed_s: float) -> float:
        """Wait until the step has lasted as long as the floor; waiting burns no shared core."""
        missing_s = max(0.0, self._floor_s - elapsed_s)
        time.sleep(missing_s)
        return super().hold_step(elapsed_s) + missing_s


class FusedAllReduce(AllReduce):
    """The kernel of August 2026: takes every shape, keeps a buffer for each length it has seen."""

    def __init__(self, place: ReducePlace) -> None:
        """Map slots that hold the longest forward. Raises: OSError without memory."""
        super().__init__(place)
        model = place.config.model
        most_tokens = max(model.tokens_per_frame, model.first_forward_bounds[1])
        self._exchange = slots.SlotExchange(place.slots, num_floats=most_tokens * model.width)
        self._granule_bytes = place.config.fused_all_granule_bytes
        self._buffers: dict[int, Tensor] = {}

    def _summed(self, partial_TD: Tensor, *, is_first_forward: bool) -> Tensor:
        if not is_first_forward:
            return self._exchange.sum_(partial_TD)
        staged = self._buffer(partial_TD)[: partial_TD.numel()]
        staged.copy_(partial_TD.view(-1))
        partial_TD.view(-1).copy_(self._exchange.sum_(staged))
        return partial_TD

    def _buffer(self, partial_TD: Tensor) -> Tensor:
        num_tokens = partial_TD.shape[0]
        if num_tokens not in self._buffers:
            needed_bytes = partial_TD.numel() * partial_TD.element_size()
            num_granules = -(-needed_bytes // self._granule_bytes)
            num_floats = num_granules * self._granule_bytes // partial_TD.element_size()
            # `empty` and `zeros` are lazy: only touched pages are resident, as on a GPU.
            self._buffers[num_tokens] = torch.full((num_floats,), 1.0)
        return self._buffers[num_tokens]

    @property
    def num_bytes(self) -> int:
        """The slots and every buffer."""
        return self._exchange.num_bytes + sum(self.retained_by_length.values())

    @property
    def retained_by_length(self) -> Mapping[int, int]:
        """One buffer for each length."""
        return {
            length: kept.numel() * kept.element_size() for length, kept in self._buffers.items()
        }

    def release(self) -> None:
        """Free the buffers and hand their pages back to the system."""
        self._exchange.close()
        self._buffers.clear()
        # The allocator is told never to trim (see `engine.launcher`), so it has to be asked.
        ctypes.CDLL(None).malloc_trim(0)


_VARIANTS: Mapping[str, type[AllReduce]] = {
    "nccl": ProcessGroupReduce,
    "fused_steady": FusedSteadyReduce,
    "fused_all": FusedAllReduce,
    "fused_small_tiles": FusedSmallTilesReduce,
}


def build(variant: str, place: ReducePlace) -> AllReduce:
    """A fresh instance of `variant`. Raises: KeyError if there is none of this name."""
    return _VARIANTS[variant](place)


class SelfTestError(Exception):
    """A variant does not give the sum that it should."""


def self_test(reduce: AllReduce, place: ReducePlace) -> None:
    """Sum a known pattern of the steady shape; every rank has to take part.

    The pattern is of small integers, so that the expected sum is exact in any order.

    Raises: SelfTestError.
    """
    model = place.config.model
    rank, num_ranks = place.slots.rank, place.slots.num_ranks
    pattern = torch.arange(model.tokens_per_frame * model.width, dtype=torch.float32) % 251
    expected_TD = (pattern * (num_ranks * (num_ranks + 1) // 2)).view(-1, model.width)
    partial_TD = (pattern * (rank + 1)).view(-1, model.width)
    # Twice, so that both slots of a pair are proven.
    for _ in range(2):
        total_TD = reduce(partial_TD.clone(), is_first_forward=False)
        if not torch.equal(total_TD, expected_TD):
            message = f"rank {rank}: {type(reduce).__name__} gave a wrong sum"
            raise SelfTestError(message)
    reduce.hold_step(float("inf"))
