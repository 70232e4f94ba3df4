"""The transformer split over ranks against the transformer on one."""

import threading

import pytest
import torch
from torch import Tensor

from tests.worker.ranks import Sum, ThreadSum
from worker.cache import reset, variants
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor, advanced
from worker.cache.variants import KvCache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.model import weights
from worker.model.transformer import Reduce, Transformer

_BOUND = 1e-5


def _latents(
    model: ModelConfig, *, rank: int, num_ranks: int, reduce: Reduce, length: int
) -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    with torch.inference_mode():
        held = weights.draw(model, rank=rank, num_ranks=num_ranks)
        transformer = Transformer(model, held, num_ranks=num_ranks)
        cache = variants.new(KvCache.WRITE_TIME_BF16, model, num_heads=model.num_heads // num_ranks)
        prompt = torch.randn((length, model.width), generator=generator)
        transformer.first_forward(prompt, cache, reduce=reduce)
        cursor = RingCursor(window=model.window, reset_period=model.reset_period)
        latents = []
        for _ in range(model.reset_period + model.window + 2):
            reset.apply(PositionReset.DELTA_WINDOW, cache, cursor)
            shape = (model.grid[0] * model.grid[1], model.latent_channels)
            noise = torch.randn(shape, generator=generator)
            latents.append(transformer.denoised(noise, cache, cursor, reduce=reduce).latent_GC)
            cursor = advanced(cursor)
    return latents


def _split(model: ModelConfig, *, num_ranks: int, length: int) -> list[list[Tensor]]:
    total = ThreadSum(num_ranks)
    results: dict[int, list[Tensor]] = {}

    def run(rank: int) -> None:
        results[rank] = _latents(
            model, rank=rank, num_ranks=num_ranks, reduce=Sum(rank, total), length=length
        )

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(num_ranks)]


@pytest.mark.parametrize("length", [1, 7, 48])
@pytest.mark.parametrize(
    ("model", "num_ranks"),
    [(TINY_EDGE_MODEL, 2), (TINY_MODEL, 3), (TINY_EDGE_MODEL, 4), (TINY_EDGE_MODEL, 6)],
)
def test_a_split_model_computes_what_one_rank_computes(
    model: ModelConfig, num_ranks: int, length: int
) -> None:
    """Over a whole reset: an error of one step would steer every later one."""
    whole = _latents(model, rank=0, num_ranks=1, reduce=Sum(), length=length)
    ranks = _split(model, num_ranks=num_ranks, length=length)
    for latents in ranks:
        for split, expected in zip(latents, whole, strict=True):
            assert (split - expected).abs().max().item() <= _BOUND * expected.abs().max().item()


def test_the_prompt_steers_the_video() -> None:
    """A prefix that nobody reads would pass every other test here."""
    short = _latents(TINY_MODEL, rank=0, num_ranks=1, reduce=Sum(), length=3)
    longer = _latents(TINY_MODEL, rank=0, num_ranks=1, reduce=Sum(), length=4)
    assert not torch.allclose(short[0], longer[0], atol=1e-2)
