"""A session goes on after its group has died: on the fallback, from the last latents."""

import asyncio
import io
from contextlib import aclosing
from dataclasses import replace

import pytest
from PIL import Image, ImageChops, ImageStat

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.config import InjectedFault, Injection
from worker.engine.api import Chunk, Effective, Fault, FaultKind, FlagsRefused
from worker.engine.engine import EngineStartError, LocalEngine

TINY = config.tiny()
FAST = "fused_steady"
# The kept frames are then all that ever were, so a rebuild brings back the very same cache.
EARLY = TINY.model.window - 1
LATE = 3 * TINY.model.reset_period


def _faulty(kind: InjectedFault, *, rank: int, session_step: int) -> config.WorkerConfig:
    fault = Injection(kind=kind, rank=rank, session_step=session_step)
    return replace(TINY, faults=(fault,))


async def _watched(engine: LocalEngine) -> Fault:
    """Wait for the fault and bring up a new group on the fallback, as the supervisor does."""
    async for event in engine.events():
        if isinstance(event, Fault):
            if event.is_survived:
                await engine.restart({}, generation=50)
            return event
    raise AssertionError("the events never end")


async def _survived(engine: LocalEngine, number: int, *, name: str = "long") -> list[Chunk]:
    stream = engine.chunks(name, first_forward_length=5, seed=11, survives=True)
    got: list[Chunk] = []
    async with aclosing(stream) as chunks:
        async for chunk in chunks:
            got.append(chunk)
            if len(got) == number:
                break
    return got


def _lived_through(stand: Stand, engine: LocalEngine, number: int) -> tuple[list[Chunk], Fault]:
    async def both() -> tuple[list[Chunk], Fault]:
        watching = asyncio.create_task(_watched(engine))
        return await _survived(engine, number), await watching

    return stand.run(both())


def _difference(ours: Chunk, theirs: Chunk) -> float:
    """Mean difference of two chunks' pictures, in steps of 256."""
    pairs = zip(ours.frames, theirs.frames, strict=True)
    pictures = [tuple(Image.open(io.BytesIO(frame)) for frame in pair) for pair in pairs]
    means = [ImageStat.Stat(ImageChops.difference(*pair)).mean for pair in pictures]
    return sum(map(sum, means)) / (3 * len(means))


@pytest.mark.parametrize("session_step", [EARLY, LATE], ids=["fill", "wrapped"])
@pytest.mark.parametrize(
    ("injected", "rank", "kind"),
    [
        (InjectedFault.DIE, 0, FaultKind.RANK_DIED),
        (InjectedFault.DIE, 1, FaultKind.RANK_DIED),
        (InjectedFault.RAISE, 1, FaultKind.RANK_DIED),
        (InjectedFault.HANG, 1, FaultKind.RANK_HUNG),
        (InjectedFault.NAN, 1, FaultKind.NAN),
        (InjectedFault.DISAGREE, 1, FaultKind.RANK_DISAGREEMENT),
        (InjectedFault.CORRUPT_PLAN, 1, FaultKind.RANK_DISAGREEMENT),
    ],
)
def test_a_session_goes_on_after_any_fault_without_a_gap(
    stand: Stand, injected: InjectedFault, rank: int, kind: FaultKind, session_step: int
) -> None:
    """The rank is named, the flags are the fallback's, and every chunk comes once and in order."""
    engine = stand.started(_faulty(injected, rank=rank, session_step=session_step), FAST)
    chunks, fault = _lived_through(stand, engine, session_step + 30)
    # Rank 0 looks at the latent; a NaN on any rank has reached it through the sums.
    named = 0 if kind is FaultKind.NAN else rank
    assert (fault.kind, fault.rank, fault.is_survived) == (kind, named, True)
    assert fault.flags == flags.fallback() | {"fused_allreduce": FAST}
    assert [chunk.step for chunk in chunks] == list(range(session_step + 30))
    assert isinstance(stand.flipped(engine, FAST, generation=60), Effective)


def test_the_video_goes_on_as_if_nothing_had_happened_while_all_frames_are_kept(
    stand: Stand, taken: Taken
) -> None:
    """Cache and decoder's memory are those of before; a session begun anew is another video."""
    undisturbed = stand.run(taken(stand.started(TINY), EARLY + 12))
    config_ = _faulty(InjectedFault.DIE, rank=1, session_step=EARLY)
    chunks, _ = _lived_through(stand, stand.started(config_), EARLY + 12)
    assert [c.frames for c in chunks[:EARLY]] == [c.frames for c in undisturbed[:EARLY]]
    differences = [
        _difference(ours, theirs) for ours, theirs in zip(chunks, undisturbed, strict=True)
    ]
    assert max(differences) < 1
    shifted = [_difference(a, b) for a, b in zip(chunks[1:], undisturbed[:-1], strict=True)]
    assert min(shifted) > 4 * max(differences)


def test_a_session_without_a_chunk_has_nothing_to_go_on_from(stand: Stand) -> None:
    """The August deaths came in the first forward."""
    engine = stand.started(_faulty(InjectedFault.DIE, rank=0, session_step=0))
    chunks, fault = _lived_through(stand, engine, 5)
    assert (chunks, fault.is_survived, fault.session) == ([], False, "long")


def test_a_session_that_brings_down_the_next_group_too_is_over(stand: Stand) -> None:
    """What fails on the fallback as well must not go round for ever."""
    faults = tuple(
        Injection(kind=InjectedFault.DIE, rank=1, session_step=step, launch=launch)
        for launch, step in enumerate((5, 9))
    )
    engine = stand.started(replace(TINY, faults=faults))

    async def life() -> tuple[list[Chunk], Fault, Fault]:
        async def watched() -> tuple[Fault, Fault]:
            return await _watched(engine), await _watched(engine)

        watching = asyncio.create_task(watched())
        chunks = await _survived(engine, 100)
        return chunks, *await watching

    chunks, first, second = stand.run(life())
    assert (first.is_survived, second.is_survived) == (True, False)
    assert [chunk.step for chunk in chunks] == list(range(len(chunks)))
    assert 5 <= len(chunks) <= 9


def test_a_viewer_that_leaves_meanwhile_ends_the_session(stand: Stand, taken: Taken) -> None:
    """The new group has nothing to go on with, and serves the next viewer."""
    engine = stand.started(_faulty(InjectedFault.DIE, rank=1, session_step=3))

    async def life() -> Fault:
        stream = engine.chunks("gone", first_forward_length=5, seed=11, survives=True)
        for _ in range(3):
            await anext(stream)
        fault = await anext(engine.events())
        await stream.aclose()
        await engine.restart({}, generation=50)
        assert isinstance(fault, Fault)
        return fault

    assert stand.run(life()).is_survived
    assert [chunk.step for chunk in stand.run(taken(engine, 4))] == [0, 1, 2, 3]


def test_without_a_new_group_the_session_is_over(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its stream ends instead of waiting for ever."""
    engine = stand.started(_faulty(InjectedFault.DIE, rank=1, session_step=3))

    async def refused(*_: object, **__: object) -> None:
        raise EngineStartError("rank0: no memory")

    async def life() -> list[Chunk]:
        session = asyncio.create_task(_survived(engine, 100))
        assert isinstance(await anext(engine.events()), Fault)
        monkeypatch.setattr(engine, "_launched", refused)
        with pytest.raises(EngineStartError):
            await engine.restart({}, generation=50)
        return await session

    assert len(stand.run(life())) <= 4


def test_a_stopped_engine_ends_a_session_that_waits(stand: Stand) -> None:
    """A worker that drains does not wait for a group that never comes."""
    engine = stand.started(_faulty(InjectedFault.DIE, rank=1, session_step=3))

    async def life() -> list[Chunk]:
        session = asyncio.create_task(_survived(engine, 100))
        assert isinstance(await anext(engine.events()), Fault)
        await engine.stop()
        return await session

    assert len(stand.run(life())) <= 4


def test_chunks_are_taken_while_the_new_group_comes_up(stand: Stand) -> None:
    """A paced viewer has a few left, and nobody is there yet to be told of it."""
    # All that came before a hang is delivered by the time it is noticed.
    hung = _faulty(InjectedFault.HANG, rank=1, session_step=7)
    engine = stand.started(replace(hung, max_chunks_ahead=8))

    async def life() -> list[Chunk]:
        stream = engine.chunks("paced", first_forward_length=5, seed=11, survives=True)
        got = [await anext(stream) for _ in range(3)]
        assert isinstance(await anext(engine.events()), Fault)
        restarting = asyncio.create_task(engine.restart({}, generation=50))
        await asyncio.sleep(0)  # far enough to have a group, and no process in it
        got += [await anext(stream), await anext(stream)]
        engine.steer("paced", features=bytes(32))
        engine.request_flags({"fused_allreduce": FAST}, generation=60)
        await engine.memory()
        assert not restarting.done()
        await restarting
        got += [await anext(stream) for _ in range(20)]
        await stream.aclose()
        return got

    assert [chunk.step for chunk in stand.run(life())] == list(range(25))
    refused = stand.event(engine)
    assert isinstance(refused, FlagsRefused)
    assert refused.reason == "no group is running"
