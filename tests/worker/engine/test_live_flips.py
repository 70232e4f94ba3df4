"""Flags that change under a running session."""

import asyncio
from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.config import InjectedFault, Injection
from worker.engine.api import Chunk, Effective, FlagsRefused
from worker.engine.engine import LocalEngine

TINY = config.tiny()


async def _streamed(engine: LocalEngine, requests: dict[int, str], *, number: int) -> list[Chunk]:
    """A session during which flags are requested after the given steps."""
    chunks = engine.chunks("session", first_forward_length=7, seed=5)
    got = []
    async for chunk in chunks:
        got.append(chunk)
        if chunk.step in requests:
            variant = requests[chunk.step]
            engine.request_flags({"fused_allreduce": variant}, generation=10 + chunk.step)
        if len(got) == number:
            break
    await chunks.aclose()
    return got


def test_flips_both_ways_lose_no_chunk_and_change_no_picture(stand: Stand, taken: Taken) -> None:
    """The same session without a flip is the oracle."""
    engine = stand.started(TINY)
    flips = {3: "fused_steady", 9: "nccl", 14: "fused_all", 20: "fused_steady", 26: "nccl"}
    flipped = stand.run(_streamed(engine, flips, number=34))
    answers = [stand.event(engine) for _ in flips]
    plain = stand.run(taken(engine, 34, length=7, seed=5))
    assert [chunk.step for chunk in flipped] == list(range(34))
    assert [chunk.frames for chunk in flipped] == [chunk.frames for chunk in plain]
    for answer, variant in zip(answers, flips.values(), strict=True):
        assert isinstance(answer, Effective)
        assert answer.flags == flags.fallback() | {"fused_allreduce": variant}
        assert len({(rank.digest, rank.step) for rank in answer.ranks}) == 1


@pytest.mark.parametrize("variant", ["fused_steady", "fused_all", "fused_small_tiles"])
def test_an_idle_engine_flips_at_once(stand: Stand, variant: str) -> None:
    """No session is needed to make the control plane's wish true, in both directions."""
    engine = stand.started(TINY)
    there = stand.flipped(engine, variant, generation=2)
    back = stand.flipped(engine, "nccl", generation=3)
    assert isinstance(there, Effective)
    assert isinstance(back, Effective)
    # Prepared in step 0, committed in step 2; then one phase.
    assert [there.ranks[0].step, back.ranks[0].step] == [2, 3]
    assert there.ranks[0].flag_bytes["fused_allreduce"] > 0
    assert back.ranks[0].flag_bytes["fused_allreduce"] == 0


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"fused_allreduce": "warp"}, "'fused_allreduce' has no variant 'warp'; allowed: nccl"),
        (
            {"kv_cash": "ring"},
            "unknown flag 'kv_cash' (variant 'ring'); allowed: fused_allreduce",
        ),
    ],
)
def test_unknown_flags_are_refused_and_nothing_changes(
    stand: Stand, taken: Taken, flags: dict[str, str], sentence: str
) -> None:
    """The reason names the flag, the variant and what is allowed."""
    engine = stand.started(TINY, "fused_steady")
    engine.request_flags(flags, generation=2)
    refused = stand.event(engine)
    assert isinstance(refused, FlagsRefused)
    assert sentence in refused.reason
    assert (refused.generation, refused.flags) == (2, flags)
    assert stand.run(engine.memory()).flag_bytes["fused_allreduce"] > 0
    assert len(stand.run(taken(engine, 3))) == 3


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_prepare_leaves_the_old_flags(
    stand: Stand, taken: Taken, rank: int
) -> None:
    """Refused as a whole; what was prepared on the other rank is freed."""
    fault = Injection(kind=InjectedFault.REFUSE_PREPARE, rank=rank)
    engine = stand.started(replace(TINY, faults=(fault,)))
    refused = stand.flipped(engine, "fused_steady", generation=2)
    assert isinstance(refused, FlagsRefused)
    assert f"rank {rank} was told not to prepare fused_steady" in refused.reason
    assert stand.run(engine.memory()).flag_bytes == {"fused_allreduce": 0, "kv_cache": 0}
    assert len(stand.run(taken(engine, 3))) == 3


def test_an_old_generation_is_ignored_and_a_newer_request_replaces_an_older(
    stand: Stand, taken: Taken
) -> None:
    """A rollback that follows on a flip's heels wins."""
    engine = stand.started(TINY)
    for variant, generation in (("fused_steady", 5), ("nccl", 6), ("fused_all", 4)):
        engine.request_flags({"fused_allreduce": variant}, generation=generation)

    async def settled() -> Effective:
        async for event in engine.events():
            assert isinstance(event, Effective)
            if event.generation == 6:
                return event
        raise AssertionError("no more events")

    assert stand.run(settled()).flags == flags.fallback()
    stand.run(taken(engine, 3))
    stand.run(asyncio.sleep(0.1))
    assert engine._events.empty()


def test_the_slow_variant_holds_each_step_to_its_floor(stand: Stand, taken: Taken) -> None:
    """A canary that must fail its frame rate, by waiting and not by burning a shared core."""
    engine = stand.started(replace(TINY, small_tiles_floor_s=0.05), "fused_small_tiles")
    parts = [chunk.parts for chunk in stand.run(taken(engine, 4))]
    assert all(part.diffusion_ms >= 50 for part in parts)
    assert all(part.reduce_ms <= part.diffusion_ms for part in parts)
