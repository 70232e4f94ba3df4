"""Real groups of any size make the same pictures, and sessions of every length leave nothing."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from tests.worker.engine.pictures import distance
from worker import config
from worker.engine.engine import LocalEngine

# Levels of 255: another order of sums moved a frame by 0.11, another prompt by 5.7.
_SAME = 0.5
_NUM_STEPS = 26  # two resets


@pytest.mark.parametrize(
    "num_ranks", [2, 3, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 6))]
)
def test_any_number_of_ranks_makes_the_pictures_of_one(
    stand: Stand, taken: Taken, num_ranks: int
) -> None:
    """Latents differ by the order of sums alone; most frames are the same file."""
    whole, split = (
        stand.run(
            taken(stand.started(replace(config.tiny(), num_ranks=number)), _NUM_STEPS, length=7)
        )
        for number in (1, num_ranks)
    )
    assert len(whole) == _NUM_STEPS
    assert distance(split, whole) < _SAME
    alike = sum(ours.frames == theirs.frames for ours, theirs in zip(split, whole, strict=True))
    assert alike > _NUM_STEPS / 2


_LENGTHS = range(1, 201)
_MODEL = replace(config.TINY_MODEL, first_forward_bounds=(1, 200))
_GRANULE = 512 * 1024


def _growth(samples: Sequence[int]) -> float:
    """Bytes a sample, by least squares."""
    middle = (len(samples) - 1) / 2
    mean = sum(samples) / len(samples)
    products = ((number - middle) * (value - mean) for number, value in enumerate(samples))
    return sum(products) / sum((number - middle) ** 2 for number in range(len(samples)))


async def _sessions(engine: LocalEngine, taken: Taken, lengths: Sequence[int]) -> list[int]:
    """Resident bytes after each session."""
    resident = []
    for length in lengths:
        assert len(await taken(engine, 1, length=length, seed=length)) == 1
        resident.append((await engine.memory()).resident_bytes)
    return resident


@pytest.mark.slow
def test_200_sessions_of_200_lengths_keep_nothing(stand: Stand, taken: Taken) -> None:
    """Flat once the heap has seen the longest; the kernel of August is the negative control."""
    shuffled = random.sample(_LENGTHS, len(_LENGTHS))
    growths = {}
    for variant, lengths in (("nccl", shuffled), ("fused_all", shuffled[:40])):
        engine = stand.started(
            replace(config.tiny(_MODEL), fused_all_granule_bytes=_GRANULE), variant
        )
        stand.run(_sessions(engine, taken, range(195, 201)))
        before = stand.run(engine.memory())
        parts = [lengths[start : start + 20] for start in range(0, len(lengths), 20)]
        resident = [
            sample for part in parts for sample in stand.run(_sessions(engine, taken, part))
        ]
        after = stand.run(engine.memory())
        growths[variant] = _growth(resident)
        if variant == "nccl":
            assert after.retained_by_length == {}
            assert after.flag_bytes == before.flag_bytes
    # Two ranks keep a granule each for a length; the heap's own growth was 60 kB a session.
    assert growths["fused_all"] > _GRANULE
    assert growths["nccl"] < _GRANULE / 4
