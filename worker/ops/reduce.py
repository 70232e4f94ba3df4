"""Every variant of the output product and its sum behind `fused_allreduce`, with one signature.

`ProcessGroupReduce` is the fallback and the oracle; the others are the CPU's twins of the fused
kernels, which exchange tiles of the product while they compute the next. Each variant accounts for
the bytes that its own code has allocated, so that a rollback can be verified.
"""

# ruff: noqa: N803, N806 - shape suffixes in names; the legend is below

import ctypes
import itertools
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


_FLOAT_BYTES = 4


# T = tokens of this forward, D = width of the model, K = inputs of this rank
class AllReduce(ABC):
    """The output product of a block and its sum over all ranks; counts its own time."""

    # The fewest with which one travels while the next is computed. Each more costs 40 to 70 us on
    # the CPU (a small product, a stamp, a doorbell, an addition), and the whole product of the
    # demo's shape takes 40 us: more of them cost more than they hide (docs/benchmarks.md).
    num_tiles = 2

    def __init__(self, place: ReducePlace) -> None:
        self._line = place.line
        self.spent_s = 0.0  # since the last `hold_step`

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        """total_TD: the sum over the ranks of each one's `joined_TK` times its `weight_DK`.

        One operation, for that is what a fused kernel implements; so its time has both in it. Every
        rank gets the same bits.

        Raises: PeerLostError; PlanError if a peer is at another product.
        """
        begun_s = time.perf_counter()
        total_TD = self._product(joined_TK, weight_DK, is_first_forward=is_first_forward)
        self.spent_s += time.perf_counter() - begun_s
        return total_TD

    @abstractmethod
    def _product(
        self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool
    ) -> Tensor: ...

    def _by_process_group(self, joined_TK: Tensor, weight_DK: Tensor) -> Tensor:
        """The plain way, and the oracle: all of the product, then one collective."""
        partial_TD = F.linear(joined_TK, weight_DK)
        self._line.enter_collective()
        return group.sum_(partial_TD)

    def _by_slots(
        self,
        exchange: slots.SlotExchange,
        joined_TK: Tensor,
        weight_DK: Tensor,
        total_TD: Tensor,
    ) -> Tensor:
        """Fill `total_TD` a tile of columns at a time; the next is computed while one travels."""
        bounds = _bounds(weight_DK.shape[0], most=self.num_tiles)
        weights = [weight_DK[low:high].t() for low, high in bounds]

        def write(tile: int, own: Tensor) -> None:
            torch.mm(joined_TK, weights[tile], out=own)
            # Once a tile: a rank that hangs between two of them has come less far than its peers.
            self._line.enter_collective()

        exchange.sum_tiles([total_TD[:, low:high] for low, high in bounds], write)
        return total_TD

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
    """The fallback: the whole product, then one collective of the process group."""

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        del is_first_forward  # every shape goes the same way
        return self._by_process_group(joined_TK, weight_DK)

    def release(self) -> None:
        """Nothing was allocated."""


class FusedSteadyReduce(AllReduce):
    """Tiles through slots for the steady shape; a first forward takes the process group."""

    def __init__(self, place: ReducePlace) -> None:
        """Map the slots. Raises: OSError without memory."""
        super().__init__(place)
        model = place.config.model
        self._exchange = slots.SlotExchange(
            place.slots, num_floats=model.tokens_per_frame * model.width
        )

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        if is_first_forward:
            return self._by_process_group(joined_TK, weight_DK)
        total_TD = joined_TK.new_empty(joined_TK.shape[0], weight_DK.shape[0])
        return self._by_slots(self._exchange, joined_TK, weight_DK, total_TD)

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

    def _product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:
        num_tokens, width = joined_TK.shape[0], weight_DK.shape[0]
        if not is_first_forward:
            total_TD = joined_TK.new_empty(num_tokens, width)
            return self._by_slots(self._exchange, joined_TK, weight_DK, total_TD)
        kept = self._buffer(num_tokens, num_tokens * width)[: num_tokens * width]
        # A copy, for the next block sums into the same buffer.
        return self._by_slots(
            self._exchange, joined_TK, weight_DK, kept.view(num_tokens, width)
        ).clone()

    def _buffer(self, num_tokens: int, least_floats: int) -> Tensor:
        if num_tokens not in self._buffers:
            num_granules = -(-least_floats * _FLOAT_BYTES // self._granule_bytes)
            num_floats = num_granules * self._granule_bytes // _FLOAT_BYTES
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
    """A known product of the steady shape; every rank has to take part.

    The patterns are of small integers, so that the expected sum is exact in any order.

    Raises: SelfTestError.
    """
    rank, num_ranks = place.slots.rank, place.slots.num_ranks
    patterns = [_patterns(place.config, of_rank) for of_rank in range(num_ranks)]
    expected_TD = torch.stack([F.linear(joined, weight) for joined, weight in patterns]).sum(0)
    joined_TK, weight_DK = patterns[rank]
    # Twice, so that both slots of a pair are proven.
    for _ in range(2):
        total_TD = reduce.product(joined_TK, weight_DK, is_first_forward=False)
        if not torch.equal(total_TD, expected_TD):
            message = f"rank {rank}: {type(reduce).__name__} gave a wrong sum"
            raise SelfTestError(message)
    reduce.hold_step(float("inf"))


def _patterns(config: WorkerConfig, rank: int) -> tuple[Tensor, Tensor]:
    """joined_TK and weight_DK of `rank`: no two ranks or columns alike, no sum above 2^24."""
    model = config.model
    num_inputs = (model.width + model.mlp_width) // config.num_ranks
    joined_TK = _small_integers(model.tokens_per_frame, num_inputs, seed=rank, largest=3)
    return joined_TK, _small_integers(model.width, num_inputs, seed=rank + 100, largest=2)


def _small_integers(num_rows: int, num_columns: int, *, seed: int, largest: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (num_rows, num_columns)
    return torch.randint(-largest, largest + 1, shape, generator=generator).float()


def _bounds(width: int, *, most: int) -> tuple[tuple[int, int], ...]:
    """First column of each tile and the one after its last: as even as can be, none empty."""
    num_tiles = min(most, width)
    edges = [width * tile // num_tiles for tile in range(num_tiles + 1)]
    return tuple(itertools.pairwise(edges))
