"""Every way in which a group can fail: named, told, and over with the next fork."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from tests.worker.engine.conftest import Stand, Taken
from worker import config, flags
from worker.config import InjectedFault, Injection
from worker.engine.api import Fault, FaultKind
from worker.engine.engine import EngineStartError, LocalEngine

TINY = config.tiny()


def _faulty(kind: InjectedFault, *, rank: int, launch: int = 0) -> config.WorkerConfig:
    return replace(TINY, faults=(Injection(kind=kind, rank=rank, session_step=3, launch=launch),))


def _fault(stand: Stand, engine: LocalEngine) -> Fault:
    event = stand.event(engine)
    assert isinstance(event, Fault)
    return event


def _recovers(stand: Stand, engine: LocalEngine, taken: Taken) -> None:
    effective = stand.run(engine.restart({}, generation=9))
    assert (effective.generation, effective.flags) == (9, flags.fallback())
    assert len(stand.run(taken(engine, 6))) == 6


@pytest.mark.parametrize("variant", ["nccl", "fused_steady"])
@pytest.mark.parametrize(
    ("injected", "rank", "kind", "named", "detail"),
    [
        (InjectedFault.RAISE, 0, FaultKind.RANK_DIED, 0, "told to raise"),
        (InjectedFault.RAISE, 1, FaultKind.RANK_DIED, 1, "told to raise"),
        (InjectedFault.DIE, 0, FaultKind.RANK_DIED, 0, "signal SIGKILL"),
        (InjectedFault.DIE, 1, FaultKind.RANK_DIED, 1, "signal SIGKILL"),
        (InjectedFault.HANG, 0, FaultKind.RANK_HUNG, 0, "rank0 showed no life"),
        (InjectedFault.HANG, 1, FaultKind.RANK_HUNG, 1, "rank1 showed no life"),
        # Rank 0 looks at the latent; a NaN on any rank has reached it through the sums.
        (InjectedFault.NAN, 1, FaultKind.NAN, 0, "not finite"),
        (InjectedFault.DISAGREE, 1, FaultKind.RANK_DISAGREEMENT, 1, "expected launch"),
        (InjectedFault.CORRUPT_PLAN, 1, FaultKind.RANK_DISAGREEMENT, 1, "checksum"),
    ],
)
def test_a_fault_names_its_kind_and_its_rank_and_is_recovered_from(  # noqa: PLR0913 - a table
    stand: Stand,
    taken: Taken,
    variant: str,
    injected: InjectedFault,
    rank: int,
    kind: FaultKind,
    named: int,
    detail: str,
) -> None:
    """The rank that only lost its peer is never blamed, and the next session runs."""
    engine = stand.started(_faulty(injected, rank=rank), variant)
    chunks = stand.run(taken(engine, 50, name="doomed"))
    fault = _fault(stand, engine)
    assert (fault.kind, fault.rank, fault.session) == (kind, named, "doomed"), fault.detail
    assert detail in fault.detail
    assert fault.flags == flags.fallback() | {"fused_allreduce": variant}
    # Only what was computed before the fault, in order; the corrupt plan is one step ahead.
    assert [chunk.step for chunk in chunks] == list(range(len(chunks)))
    assert len(chunks) <= 4
    _recovers(stand, engine, taken)


@pytest.mark.parametrize("name", ["rank0", "rank1", "decoder"])
@pytest.mark.parametrize("is_streaming", [True, False])
def test_a_killed_process_is_noticed_streaming_or_idle(
    stand: Stand, taken: Taken, name: str, *, is_streaming: bool
) -> None:
    """Through the end of its channel."""
    engine = stand.started(TINY)

    async def killed() -> None:
        session = asyncio.create_task(taken(engine, 10_000)) if is_streaming else None
        await asyncio.sleep(0.1)
        os.kill(engine.pids()[name], signal.SIGKILL)
        if session:
            await session

    stand.run(killed())
    fault = _fault(stand, engine)
    expected = None if name == "decoder" else int(name[-1])
    assert (fault.kind, fault.rank) == (FaultKind.RANK_DIED, expected)
    assert f"{name} ended without a word (signal SIGKILL)" in fault.detail
    assert fault.session == ("session" if is_streaming else None)
    _recovers(stand, engine, taken)


@pytest.mark.parametrize(
    ("name", "is_streaming"), [("rank0", False), ("rank1", True), ("decoder", True)]
)
def test_a_stopped_process_is_found_by_the_watchdog(
    stand: Stand, taken: Taken, name: str, *, is_streaming: bool
) -> None:
    """It holds its sockets open, so only the progress board shows it."""
    engine = stand.started(TINY, "fused_steady")

    async def stopped() -> None:
        session = asyncio.create_task(taken(engine, 10_000)) if is_streaming else None
        await asyncio.sleep(0.1)
        os.kill(engine.pids()[name], signal.SIGSTOP)
        if session:
            await session

    stand.run(stopped())
    fault = _fault(stand, engine)
    expected = None if name == "decoder" else int(name[-1])
    assert (fault.kind, fault.rank) == (FaultKind.RANK_HUNG, expected)
    assert f"{name} showed no life" in fault.detail
    assert "is stopped" in fault.detail
    _recovers(stand, engine, taken)


def test_a_fault_after_a_restart_is_told_again(stand: Stand, taken: Taken) -> None:
    """The second group is watched as the first was."""
    engine = stand.started(_faulty(InjectedFault.RAISE, rank=1, launch=1))
    assert len(stand.run(taken(engine, 6))) == 6
    stand.run(engine.restart({}, generation=2))
    stand.run(taken(engine, 50))
    assert _fault(stand, engine).kind is FaultKind.RANK_DIED
    _recovers(stand, engine, taken)


def test_memory_and_requests_after_a_fault_do_no_harm(stand: Stand, taken: Taken) -> None:
    """The supervisor asks by its own clock and may be late."""
    engine = stand.started(_faulty(InjectedFault.DIE, rank=0))
    before = stand.run(engine.memory())
    stand.run(taken(engine, 50))
    _fault(stand, engine)
    assert stand.run(engine.memory()) == before
    assert "no group is running" in str(stand.flipped(engine, "fused_steady", generation=7))
    assert stand.run(taken(engine, 3)) == []


def test_a_group_that_does_not_come_up_says_which_process(stand: Stand) -> None:
    """A start that hangs ends at its timeout and leaves nothing behind."""
    engine = stand.engine(replace(TINY, start_timeout_s=0.001))
    with pytest.raises(EngineStartError, match="not ready in time: rank0, rank1, decoder"):
        stand.run(engine.start({}, generation=1))
    assert set(engine.pids()) <= {"forkserver"}
