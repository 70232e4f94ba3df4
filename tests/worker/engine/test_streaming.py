"""Sessions of real processes."""

import asyncio
import io
import sys
from dataclasses import replace

import pytest
from PIL import Image

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.engine.api import Effective
from worker.engine.engine import EngineStartError

TINY = config.tiny()


def test_a_session_is_chunks_of_four_pictures_in_order(stand: Stand, taken: Taken) -> None:
    """More steps than a whole reset of the positions takes."""
    engine = stand.started(TINY, "fused_steady")
    chunks = stand.run(taken(engine, 30))
    assert [chunk.step for chunk in chunks] == list(range(30))
    assert {len(chunk.frames) for chunk in chunks} == {4}
    with Image.open(io.BytesIO(chunks[-1].frames[3])) as picture:
        assert (picture.format, picture.size) == ("JPEG", (64, 48))
    for chunk in chunks:
        assert 0 <= chunk.parts.reduce_ms <= chunk.parts.diffusion_ms


def test_the_variants_make_the_same_video(stand: Stand, taken: Taken) -> None:
    """Bit for bit with two ranks: a flip must not steer the video elsewhere."""
    engine = stand.started(TINY)
    videos = []
    for generation, variant in enumerate(("nccl", "fused_steady", "fused_all"), start=2):
        stand.flipped(engine, variant, generation=generation)
        videos.append([chunk.frames for chunk in stand.run(taken(engine, 14, length=9))])
    assert videos[0] == videos[1] == videos[2]


def test_seed_and_prompt_length_make_another_video(stand: Stand, taken: Taken) -> None:
    """Every length within the bounds is taken, the longest after shorter ones too."""
    engine = stand.started(TINY, "fused_steady")
    videos = [
        tuple(chunk.frames for chunk in stand.run(taken(engine, 2, length=length, seed=seed)))
        for length, seed in ((1, 1), (13, 1), (48, 1), (13, 2))
    ]
    assert len(set(videos)) == 4


def test_at_most_three_chunks_are_computed_ahead_of_the_consumer(stand: Stand) -> None:
    """A viewer that stalls must not make the worker fill its memory."""
    engine = stand.started(TINY, "fused_steady")

    async def stalled() -> int:
        chunks = engine.chunks("slow", first_forward_length=5, seed=1)
        await anext(chunks)
        await asyncio.sleep(0.5)
        waiting = engine._session.chunks.qsize() if engine._session else -1
        await chunks.aclose()
        return waiting

    # The consumer holds one and has not asked for the next: two more may wait.
    assert stand.run(stalled()) == 2


def test_one_session_at_a_time_and_only_lengths_within_the_bounds(stand: Stand) -> None:
    """Refused before anything is computed."""
    engine = stand.started(TINY)

    async def second() -> None:
        chunks = engine.chunks("one", first_forward_length=5, seed=1)
        await anext(chunks)
        with pytest.raises(ValueError, match="session 'one' is running"):
            engine.chunks("two", first_forward_length=5, seed=1)
        await chunks.aclose()
        engine.chunks("two", first_forward_length=5, seed=1)

    stand.run(second())
    for length in (0, 49):
        with pytest.raises(ValueError, match=f"length is {length}; allowed: 1 to 48"):
            engine.chunks("three", first_forward_length=length, seed=1)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_other_numbers_of_ranks_stream_too(stand: Stand, taken: Taken, num_ranks: int) -> None:
    """Three ranks are what production runs."""
    engine = stand.started(replace(TINY, num_ranks=num_ranks), "fused_steady")
    assert len(stand.run(taken(engine, 6))) == 6


def test_a_start_with_unknown_flags_is_refused(stand: Stand) -> None:
    """By name, and nothing is forked."""
    engine = stand.engine(TINY)
    with pytest.raises(EngineStartError, match="no variant 'warp'; allowed: nccl"):
        stand.run(engine.start({"fused_allreduce": "warp"}, generation=1))
    assert "rank0" not in engine.pids()


def test_the_start_reports_one_digest_of_every_rank(stand: Stand) -> None:
    """What the control plane is told to be effective is what the ranks say."""
    engine = stand.engine(TINY)
    effective = stand.run(engine.start({}, generation=4))
    assert isinstance(effective, Effective)
    assert effective.flags == flags.fallback()
    assert [rank.rank for rank in effective.ranks] == [0, 1]
    assert len({(rank.digest, rank.generation, rank.step) for rank in effective.ranks}) == 1


def test_memory_is_told_while_idle_and_while_streaming(stand: Stand, taken: Taken) -> None:
    """Without stopping a step."""
    engine = stand.started(TINY)

    async def both() -> list[int]:
        idle = await engine.memory()
        session = asyncio.create_task(taken(engine, 20))
        await asyncio.sleep(0.02)
        busy = await engine.memory()
        await session
        return [idle.resident_bytes, busy.resident_bytes]

    assert min(stand.run(both())) > 10 * config.MIB


def test_the_supervisor_does_not_import_torch() -> None:
    """The processes that it forks would carry it, and its memory, twice."""
    code = (
        "import sys; import worker.engine.engine; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )

    async def imported() -> int | None:
        child = await asyncio.create_subprocess_exec(sys.executable, "-c", code)
        return await child.wait()

    assert asyncio.run(imported()) == 0
