"""The flag `decoder` on real processes: the same video, other processes, and only by a restart."""

import asyncio
import os
import signal
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.config import InjectedFault, Injection
from worker.engine.api import Chunk, Effective, Fault, FaultKind, FlagsRefused
from worker.engine.engine import EngineStartError, LocalEngine

TINY = config.tiny()
SHARED = flags.fallback() | {"decoder": "shared"}


def _started(stand: Stand, worker: config.WorkerConfig, **asked: str) -> LocalEngine:
    engine = stand.engine(worker)
    stand.run(engine.start(flags.fallback() | asked, generation=1))
    return engine


@pytest.mark.parametrize("decoder", ["small", "streaming"])
def test_both_variants_make_the_same_jpegs_session_after_session(
    stand: Stand, taken: Taken, decoder: str
) -> None:
    """Byte for byte; and the second session owes nothing to the first."""
    worker = replace(TINY, model=replace(TINY.model, decoder=decoder))
    videos = [
        [
            tuple(chunk.frames for chunk in stand.run(taken(engine, 12, seed=seed)))
            for seed in (1, 2, 1)
        ]
        for engine in (_started(stand, worker, decoder=each) for each in ("dedicated", "shared"))
    ]
    assert videos[0] == videos[1]
    assert videos[0][0] == videos[0][2] != videos[0][1]


def test_a_shared_decoder_is_no_process_and_its_work_is_exposed(stand: Stand, taken: Taken) -> None:
    """Nobody is forked for it, so nobody can die of it or be waited for."""
    engine = _started(stand, TINY, decoder="shared")
    assert set(engine.pids()) == {"forkserver", "rank0", "rank1"}
    for chunk in stand.run(taken(engine, 6)):
        assert chunk.parts.decoder_ms > 0
        assert chunk.parts.encode_ms > 0
        assert chunk.parts.decoder_hidden_ms == chunk.parts.encode_hidden_ms == 0


def test_a_dedicated_decoder_works_beside_the_next_diffusion(stand: Stand, taken: Taken) -> None:
    """Each diffusion is held for 50 ms, of which the decoder needs a few."""
    engine = _started(
        stand, replace(TINY, small_tiles_floor_s=0.05), fused_allreduce="fused_small_tiles"
    )
    assert set(engine.pids()) == {"forkserver", "rank0", "rank1", "decoder"}
    parts = [chunk.parts for chunk in stand.run(taken(engine, 6))]
    assert sum(part.decoder_hidden_ms for part in parts) > 0
    assert all(min(part.decoder_ms, part.decoder_hidden_ms) >= 0 for part in parts)


def test_a_running_group_refuses_another_decoder_and_takes_the_rest(
    stand: Stand, taken: Taken
) -> None:
    """Refused as a whole, by name; flags that apply at a step still do."""
    engine = _started(stand, TINY, decoder="shared")
    engine.request_flags(flags.fallback(), generation=2)
    refused = stand.event(engine)
    assert isinstance(refused, FlagsRefused)
    assert refused.generation == 2
    assert refused.reason == (
        "flag 'decoder' applies at a restart: 'shared' stays, 'dedicated' was asked for"
    )
    fast = SHARED | {"fused_allreduce": "fused_steady"}
    engine.request_flags(fast, generation=3)
    taken_up = stand.event(engine)
    assert isinstance(taken_up, Effective)
    assert taken_up.flags == fast
    assert len(stand.run(taken(engine, 3))) == 3


def test_a_restart_brings_the_other_variant_in_both_directions(stand: Stand, taken: Taken) -> None:
    """The new group is told effective by its own ranks, with the processes that go with it."""
    engine = _started(stand, TINY)
    for generation, variant in enumerate(("shared", "dedicated", "shared"), start=2):
        wanted = flags.fallback() | {"decoder": variant}
        effective = stand.run(engine.restart(wanted, generation=generation))
        assert effective.flags == wanted
        assert {rank.digest for rank in effective.ranks} == {flags.digest(wanted)}
        assert ("decoder" in engine.pids()) is (variant == "dedicated")
        assert len(stand.run(taken(engine, 3))) == 3
    assert engine._events.empty()


@pytest.mark.parametrize("name", ["rank0", "rank1"])
@pytest.mark.parametrize(
    ("number", "kind"),
    [(signal.SIGKILL, FaultKind.RANK_DIED), (signal.SIGSTOP, FaultKind.RANK_HUNG)],
)
def test_a_rank_that_dies_or_stops_is_named_without_a_decoder_too(
    stand: Stand, taken: Taken, name: str, number: signal.Signals, kind: FaultKind
) -> None:
    """One process and one line of the board less must not shift who is blamed."""
    engine = _started(stand, TINY, decoder="shared")

    async def struck() -> None:
        session = asyncio.create_task(taken(engine, 10_000))
        await asyncio.sleep(0.1)
        os.kill(engine.pids()[name], number)
        await session

    stand.run(struck())
    fault = stand.event(engine)
    assert isinstance(fault, Fault)
    assert (fault.kind, fault.rank, fault.flags) == (kind, int(name[-1]), SHARED)
    assert stand.run(engine.restart({}, generation=2)).flags == flags.fallback()
    assert len(stand.run(taken(engine, 3))) == 3


def test_a_session_outlives_its_group_from_a_shared_decoder_to_a_dedicated_one(
    stand: Stand, taken: Taken
) -> None:
    """What the decoder remembered is made anew in another process: no picture shows the seam."""
    whole = stand.run(taken(stand.started(TINY), 12, seed=11))
    fault = Injection(kind=InjectedFault.DIE, rank=1, session_step=3)
    engine = _started(stand, replace(TINY, faults=(fault,)), decoder="shared")

    async def watched() -> list[Chunk]:
        chunks = engine.chunks("long", first_forward_length=5, seed=11, survives=True)
        got: list[Chunk] = []
        restarting: asyncio.Task[Effective] | None = None
        async with aclosing(chunks):
            while len(got) < 12:
                if len(got) == 3 and restarting is None:
                    assert isinstance(await anext(engine.events()), Fault)
                    restarting = asyncio.create_task(engine.restart({}, generation=2))
                got.append(await anext(chunks))
        assert restarting is not None
        assert (await restarting).flags == flags.fallback()
        return got

    found = stand.run(watched())
    assert [chunk.step for chunk in found] == list(range(12))
    assert [chunk.frames for chunk in found[:4]] == [chunk.frames for chunk in whole[:4]]


def test_a_shared_group_that_does_not_come_up_misses_no_decoder(stand: Stand) -> None:
    """Only who was forked can be late."""
    engine = stand.engine(replace(TINY, start_timeout_s=0.001))
    with pytest.raises(EngineStartError, match=r"not ready in time: rank0, rank1$"):
        stand.run(engine.start(SHARED, generation=1))
