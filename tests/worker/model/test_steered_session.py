"""Features in the model: in every rank alike, and again when the cache is made anew."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.worker.ranks import Sum, ThreadSum
from worker import flags
from worker.cache.ring import RingCursor
from worker.config import TINY_MODEL
from worker.engine.noise import Noise
from worker.engine.session import Chosen, SessionCompute
from worker.features import Features
from worker.model import weights
from worker.model.conditioning import Conditioning
from worker.model.transformer import Transformer

LOUD = Features(audio=[1.0, -0.5], control=[0.25] * 16).packed()
PLAIN = {**flags.fallback(), "kv_cache": "recompute"}
START = RingCursor(window=TINY_MODEL.window, reset_period=TINY_MODEL.reset_period)


def session(end: Sum, *, num_ranks: int = 1) -> SessionCompute:
    held = weights.draw(TINY_MODEL, rank=end.rank, num_ranks=num_ranks)
    transformer = Transformer(TINY_MODEL, held, num_ranks=num_ranks)
    prompt_LD = Noise().of_prompt(1, length=5, width=TINY_MODEL.width)  # noqa: N806 - a shape
    return SessionCompute(
        transformer, TINY_MODEL, Chosen.of(PLAIN), prompt_LD=prompt_LD, reduce=end
    )


def stepped(subject: SessionCompute, end: Sum, *, packed: list[bytes]) -> list[Tensor]:
    """The latents of as many steps, each with its features."""
    conditioning = Conditioning(TINY_MODEL)
    rows, columns = TINY_MODEL.grid
    return [
        subject.step(
            Noise().of_step(1, number, rows * columns, TINY_MODEL.latent_channels),
            replace(START, num_frames=number, position=number),
            added_ED=conditioning.added(each),
            reduce=end,
        ).latent_GC
        for number, each in enumerate(packed)
    ]


def ranks_stepped(num_ranks: int, packed: list[bytes]) -> Iterator[list[Tensor]]:
    total = ThreadSum(num_ranks)

    def one(rank: int) -> list[Tensor]:
        end = Sum(rank, total)
        return stepped(session(end, num_ranks=num_ranks), end, packed=packed)

    with ThreadPoolExecutor(num_ranks) as pool:
        yield from pool.map(one, range(num_ranks))


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_all_ranks_see_the_same_features(num_ranks: int) -> None:
    """Equal bits on every rank, and the video of one rank to rounding."""
    packed = [bytes(32), LOUD, LOUD, bytes(32)]
    alone = stepped(session(Sum()), Sum(), packed=packed)
    ranks = list(ranks_stepped(num_ranks, packed))
    for rank in ranks:
        for latent, first, whole in zip(rank, ranks[0], alone, strict=True):
            assert torch.equal(latent, first)
            assert torch.allclose(latent, whole, rtol=0, atol=1e-4)


def test_frames_are_made_anew_with_the_features_they_had() -> None:
    """Kept frames that are computed again without them would be others than those shown."""
    contents = []
    for again in ([], [bytes(32), LOUD, LOUD]):
        subject = session(Sum())
        stepped(subject, Sum(), packed=[bytes(32), LOUD, LOUD])
        if again:
            subject.rebuild(subject._prompt_LD, num_kept=3, reduce=Sum())
        contents.append(subject._cache.contents())
    before, after = contents
    for kept, anew in zip(before.frames, after.frames, strict=True):
        assert torch.allclose(kept.k_BHTD, anew.k_BHTD, rtol=0, atol=1e-4)
        assert torch.allclose(kept.v_BHTD, anew.v_BHTD, rtol=0, atol=1e-4)


def test_the_comparison_notices_frames_made_anew_without_their_features() -> None:
    """Else the test before could not fail."""
    contents = []
    for packed in ([bytes(32), LOUD, LOUD], [bytes(32), bytes(32), bytes(32)]):
        subject = session(Sum())
        stepped(subject, Sum(), packed=packed)
        contents.append(subject._cache.contents())
    keys = [each.frames[-1].k_BHTD for each in contents]
    assert not torch.allclose(keys[0], keys[1], rtol=0, atol=1e-2)
