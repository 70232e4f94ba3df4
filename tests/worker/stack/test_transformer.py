"""The transformer split over ranks against the transformer on one."""

import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from worker.cache.ring import RingCursor, advanced
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.model.transformer import Transformer

_BOUND = 1e-5


class ThreadSum:
    """An all-reduce between threads of this process."""

    def __init__(self, num_ranks: int) -> None:
        self._barrier = threading.Barrier(num_ranks, timeout=20)
        self._partials: dict[int, Tensor] = {}

    def on(self, rank: int) -> Callable[..., Tensor]:
        def summed(partial: Tensor, *, is_first_forward: bool) -> Tensor:
            del is_first_forward
            self._partials[rank] = partial
            self._barrier.wait()
            total = torch.stack([self._partials[r] for r in sorted(self._partials)]).sum(0)
            self._barrier.wait()
            return total

        return summed


def _latents(
    model: ModelConfig, *, rank: int, num_ranks: int, reduce: Callable[..., Tensor], length: int
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    with torch.inference_mode():
        transformer = Transformer(model, rank=rank, num_ranks=num_ranks)
        cache = transformer.new_cache()
        prompt = torch.randn((length, model.width), generator=generator)
        transformer.first_forward(prompt, cache, reduce=reduce)
        cursor = RingCursor(window=model.window, reset_period=model.reset_period)
        latents = []
        for _ in range(model.reset_period + model.window + 2):
            if cursor.shift:
                cache.shift_window(cursor.shift)
            shape = (model.grid[0] * model.grid[1], model.latent_channels)
            noise = torch.randn(shape, generator=generator)
            latents.append(
                transformer.denoised(
                    noise, cache, slot=cursor.slot, position=cursor.position, reduce=reduce
                )
            )
            cursor = advanced(cursor)
    return latents


def _split(model: ModelConfig, *, num_ranks: int, length: int) -> list[list[Tensor]]:
    total = ThreadSum(num_ranks)
    results: dict[int, list[Tensor]] = {}

    def run(rank: int) -> None:
        results[rank] = _latents(
            model, rank=rank, num_ranks=num_ranks, reduce=total.on(rank), length=length
        )

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(num_ranks)]


def _alone(partial: Tensor, *, is_first_forward: bool) -> Tensor:
    del is_first_forward
    return partial


@pytest.mark.parametrize("length", [1, 7, 48])
@pytest.mark.parametrize(("model", "num_ranks"), [(TINY_EDGE_MODEL, 2), (TINY_MODEL, 3)])
def test_a_split_model_computes_what_one_rank_computes(
    model: ModelConfig, num_ranks: int, length: int
) -> None:
    """Over a whole reset: an error of one step would steer every later one."""
    whole = _latents(model, rank=0, num_ranks=1, reduce=_alone, length=length)
    ranks = _split(model, num_ranks=num_ranks, length=length)
    for latents in ranks:
        for split, expected in zip(latents, whole, strict=True):
            assert (split - expected).abs().max().item() <= _BOUND * expected.abs().max().item()


def test_the_prompt_steers_the_video() -> None:
    """A prefix that nobody reads would pass every other test here."""
    short = _latents(TINY_MODEL, rank=0, num_ranks=1, reduce=_alone, length=3)
    longer = _latents(TINY_MODEL, rank=0, num_ranks=1, reduce=_alone, length=4)
    assert not torch.allclose(short[0], longer[0], atol=1e-2)
