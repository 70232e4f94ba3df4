"""Sessions of hours, many steps, and several ranks: nothing wears out and nothing piles up."""

import gc
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.worker.ranks import Sum, ThreadSum
from tests.worker.session.drive import Drive, steps_of, worst
from worker.config import TINY_EDGE_MODEL, ModelConfig
from worker.engine import limit
from worker.engine.noise import Noise
from worker.model import weights
from worker.model.transformer import Transformer

EDGE_MODEL = replace(TINY_EDGE_MODEL, num_passes=2)
# The least that a session can be, for counting steps.
ONE_BLOCK_MODEL = replace(TINY_EDGE_MODEL, num_passes=1, num_blocks=1)
FLOAT32 = 2e-6
FP8 = 1.5e-2
# 46 hours and five years at six frames a second, at each remainder of the window.
AGES = [10**6, 10**6 + 1, 10**9]


def _aged(drive: Drive, age: int, *, taken_back: int | None = None) -> None:
    """As if `age` frames had come before and been reset away, or only `taken_back` of them."""
    back = age if taken_back is None else taken_back
    with torch.inference_mode():
        held = drive.session._cache.contents()
        drive.session._cache.load(
            replace(held, num_frames=held.num_frames + age, base=held.base + back)
        )
    drive.cursor = replace(
        drive.cursor,
        num_frames=drive.cursor.num_frames + age,
        position=drive.cursor.position + age - back,
    )


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("position_reset", ["delta_window", "delta_sinks", "rebuild"])
@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "recompute", "write_time_fp8"])
def test_a_session_of_days_makes_the_latents_of_a_young_one(
    kv_cache: str, position_reset: str, age: int
) -> None:
    """No table ends, and no angle loses a digit."""
    chosen = {"kv_cache": kv_cache, "position_reset": position_reset}
    young, old = Drive(EDGE_MODEL, chosen), Drive(EDGE_MODEL, chosen)
    young.run(4)
    old.run(4)
    _aged(old, age)
    bound = FP8 if kv_cache == "write_time_fp8" else FLOAT32
    assert worst(old.run(10), young.run(10)) < bound
    assert old.cursor.num_frames == age + 14


@pytest.mark.parametrize("age", AGES)
@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "recompute"])
def test_positions_that_count_on_for_ever_stay_exact(kv_cache: str, age: int) -> None:
    """`delta_sinks` turns the prefix on instead: positions really are beyond a million here."""
    chosen = {"kv_cache": kv_cache, "position_reset": "delta_sinks"}
    young, old = Drive(EDGE_MODEL, chosen), Drive(EDGE_MODEL, chosen)
    _aged(old, age)
    cache = old.session._cache
    with torch.inference_mode():
        cache.turn_window(-age)
        cache.turn_prefix(age)
    assert worst(old.run(steps_of(EDGE_MODEL)), young.run(steps_of(EDGE_MODEL))) < FLOAT32
    assert (cache.origin.turned_back, cache.origin.prefix_time) == (0, age + 6)


def test_positions_that_were_never_taken_back_stay_exact() -> None:
    """A fault would let them run: the first million frames of a session without any reset."""
    kinds = [Drive(EDGE_MODEL, {"kv_cache": kind}) for kind in ("recompute", "write_time_bf16")]
    for drive in kinds:
        drive.run(3)
        _aged(drive, 10**6, taken_back=0)
    found, expected = (drive.run(5) for drive in kinds)
    assert kinds[0].cursor.position == 10**6 + 8
    assert worst(found, expected) < FLOAT32


def _alive() -> int:
    gc.collect()
    # By its type: some things of torch warn when they are asked for anything.
    return sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())


@pytest.mark.parametrize(
    ("kv_cache", "position_reset"),
    [
        ("write_time_bf16", "delta_window"),
        *(
            pytest.param(kv_cache, position_reset, marks=pytest.mark.slow)
            for kv_cache in ("write_time_fp8", "recompute")
            for position_reset in ("delta_window", "delta_sinks", "rebuild")
        ),
    ],
)
@pytest.mark.slow
def test_ten_thousand_steps_keep_nothing(kv_cache: str, position_reset: str) -> None:
    """Neither a tensor nor a page."""
    drive = Drive(ONE_BLOCK_MODEL, {"kv_cache": kv_cache, "position_reset": position_reset})
    drive.run(1000)
    alive, resident = _alive(), limit.resident_bytes()
    for _ in range(9000):
        latent = drive.step()
    assert torch.isfinite(latent).all()
    assert drive.cursor.position < ONE_BLOCK_MODEL.window + ONE_BLOCK_MODEL.reset_period
    assert _alive() <= alive + 1  # the latent above
    # A latent is 384 bytes: kept, they would be 3.3 MiB.
    assert limit.resident_bytes() - resident < 2 * 2**20


def _on_ranks(
    model: ModelConfig, num_ranks: int, driven: Callable[[Drive], list[Tensor]], kv_cache: str
) -> list[list[Tensor]]:
    total = ThreadSum(num_ranks)
    found: dict[int, list[Tensor]] = {}

    def run(rank: int) -> None:
        with torch.inference_mode():
            held = weights.draw(model, rank=rank, num_ranks=num_ranks)
            transformer = Transformer(model, held, num_ranks=num_ranks)
        chosen = {"kv_cache": kv_cache}
        found[rank] = driven(Drive(model, chosen, transformer=transformer, reduce=Sum(rank, total)))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(num_ranks)]


def _driven(drive: Drive) -> list[Tensor]:
    """Fill, wrap and reset, a rebuild at the reset, a flip there and back, another prompt."""
    latents = drive.run(6)
    drive.take(position_reset="rebuild", kv_cache="recompute", pre_attention="fused")
    latents += drive.run(3)
    drive.take(position_reset="delta_sinks", kv_cache="write_time_fp8")
    latents += drive.run(4)
    drive.change_prompt(length=11, prompt_seed=3)
    return latents + drive.run(4)


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 6])
def test_ranks_flip_reset_and_rebuild_as_one(num_ranks: int) -> None:
    """Heads are a rank's own, and so are their scales: FP8 rounds alike on any number of ranks."""
    expected = _driven(Drive(EDGE_MODEL, {"kv_cache": "write_time_bf16"}))
    ranks = _on_ranks(EDGE_MODEL, num_ranks, _driven, "write_time_bf16")
    for found in ranks:
        assert worst(found[:9], expected[:9]) < 1e-5
        assert worst(found[9:], expected[9:]) < FP8 / 5
        assert worst(found, ranks[0]) == 0


def test_seeds_that_are_far_apart_draw_other_numbers() -> None:
    """The generator of torch takes 32 bits of a seed; ours have 63, and sessions are told apart."""
    noise = Noise()
    seeds = [5, 5 + 2**32, 5 + 2**33, 5 + 2**40, 5 + 2**62, 2**63 - 1]
    drawn = [noise.of_step(seed, 0, 3, 4) for seed in seeds]
    drawn += [noise.of_step(5, step, 3, 4) for step in (1, 2, 2**31, 2**32 - 1)]
    drawn += [noise.of_prompt(5, length=3, width=4)]
    for number, one in enumerate(drawn):
        assert torch.isfinite(one).all()
        assert not any(torch.equal(one, other) for other in drawn[:number])
    assert torch.equal(noise.of_step(5, 0, 3, 4), drawn[0])
