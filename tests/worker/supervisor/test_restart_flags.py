"""A flag that applies at a restart: a new group when no session is lost by it, never before."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controlplane.contract.vocabulary import Outcome, Reason
from tests.worker.agent import build
from tests.worker.supervisor.test_probing import answered, probe, until, want
from tests.worker.supervisor.test_supervisor import STEP_S, Worker, settled, worker
from worker.engine.api import FaultKind
from worker.viewer.session import BusyError

CAPABILITIES = {**build.CAPABILITIES, "decoder": ("dedicated", "shared")}
FALLBACK = build.FALLBACK | {"decoder": "dedicated"}
SHARED = build.FALLBACK | {"decoder": "shared"}
SHARED_AND_FAST = build.FAST | {"decoder": "shared"}


@asynccontextmanager
async def worker_with_decoder(tmp_path: Path) -> AsyncIterator[Worker]:
    """A worker whose build knows the flag."""
    async with worker(tmp_path, capabilities=CAPABILITIES, fallback=FALLBACK) as subject:
        yield subject


def _decoders(subject: Worker) -> list[str]:
    """Of the groups that were launched, in order."""
    return [launch["decoder"] for launch in subject.engine.launches]


def test_an_idle_worker_replaces_its_group_and_only_then_says_so(tmp_path: Path) -> None:
    """Until the new group is up the old flags are what is effective, and nobody is let in."""

    async def scenario() -> Worker:
        async with worker_with_decoder(tmp_path) as subject:
            engine = subject.engine
            engine.holds_restarts = asyncio.Event()
            before = dict(subject.agent.effective_flags())
            await subject.want(7, SHARED)
            assert subject.agent.effective_flags() == before
            with pytest.raises(BusyError, match="the engine is starting"):
                await subject.watch()
            engine.holds_restarts.set()
            await settled()
            assert subject.agent.effective_flags() == SHARED
            await subject.watch()
            assert _decoders(subject) == ["dedicated", "shared"]
        return subject

    (ended,) = asyncio.run(scenario()).ended()
    assert ended.num_non_compliant_steps == 0


def test_a_session_keeps_its_group_and_takes_what_can_change_at_a_step(tmp_path: Path) -> None:
    """A rollback of a step flag must not wait for a viewer; the rest follows the session's end."""

    async def scenario() -> Worker:
        async with worker_with_decoder(tmp_path) as subject:
            watching = asyncio.create_task(subject.watch(num_chunks=40))
            await asyncio.sleep(5 * STEP_S)
            await subject.want(7, SHARED_AND_FAST)
            assert subject.agent.effective_flags() == build.FAST | {"decoder": "dedicated"}
            assert _decoders(subject) == ["dedicated"]
            assert (await watching).outcome == "left"
            await until(lambda: subject.agent.effective_flags() == SHARED_AND_FAST)
            assert _decoders(subject) == ["dedicated", "shared"]
        return subject

    subject = asyncio.run(scenario())
    assert [record.outcome for record in subject.ended()] == [Outcome.COMPLETED]
    assert subject.plane.trips == []


def test_what_was_wanted_for_a_while_only_costs_no_restart(tmp_path: Path) -> None:
    """Back to what runs before the session has ended: there is nothing to do."""

    async def scenario() -> None:
        async with worker_with_decoder(tmp_path) as subject:
            watching = asyncio.create_task(subject.watch(num_chunks=40))
            await asyncio.sleep(5 * STEP_S)
            await subject.want(7, SHARED)
            await subject.want(8, FALLBACK)
            await watching
            await settled()
            assert _decoders(subject) == ["dedicated"]

    asyncio.run(scenario())


def test_a_fault_brings_the_decoder_back_too(tmp_path: Path) -> None:
    """The group is forked anew in any case: at the fallback, once."""

    async def scenario() -> Worker:
        async with worker_with_decoder(tmp_path) as subject:
            await subject.want(7, SHARED)
            watching = asyncio.create_task(subject.watch(num_chunks=10_000))
            await asyncio.sleep(5 * STEP_S)
            subject.engine.fail(FaultKind.RANK_DIED)
            assert (await watching).outcome == "failed"
            await settled()
            assert _decoders(subject) == ["dedicated", "shared", "dedicated"]
        return subject

    (trip,) = asyncio.run(scenario()).plane.trips
    assert (trip.reason, trip.flags) == (Reason.RANK_DIED, SHARED)


def test_a_fault_while_the_group_is_replaced_launches_no_second_one_beside_it(
    tmp_path: Path,
) -> None:
    """The old group may die as it is taken down; one group at a time, and the fallback after it."""

    async def scenario() -> None:
        async with worker_with_decoder(tmp_path) as subject:
            engine = subject.engine
            engine.holds_restarts = asyncio.Event()
            await subject.want(7, SHARED)
            engine.fail(FaultKind.RANK_DIED)
            await settled()
            engine.holds_restarts.set()
            await until(lambda: _decoders(subject)[1:] == ["shared", "dedicated"])

    asyncio.run(scenario())


def test_a_group_that_does_not_come_up_with_it_is_followed_by_one_at_the_fallback(
    tmp_path: Path,
) -> None:
    """A variant that cannot be launched is told as a trip, and viewers are served again."""

    async def scenario() -> Worker:
        async with worker_with_decoder(tmp_path) as subject:
            subject.engine._num_failing_starts = 1
            await subject.want(7, SHARED)
            await until(lambda: len(subject.engine.launches) == 3)
            assert _decoders(subject) == ["dedicated", "shared", "dedicated"]
            await subject.watch()
        return subject

    (trip,) = asyncio.run(scenario()).plane.trips
    assert trip.flags == SHARED


def test_a_probe_of_it_replaces_the_group_and_brings_the_old_one_back(tmp_path: Path) -> None:
    """Preflight has no session to lose: the way there and back is the way of a canary."""

    async def scenario() -> None:
        async with worker_with_decoder(tmp_path) as subject:
            await want(subject, 7, probe(flag="decoder", flags=SHARED, lengths=[8, 16, 24, 32]))
            report = await answered(subject)
            assert (report.fault, report.detail) == (None, "")
            assert len(report.lengths) == 4
            assert report.rollback_ms is not None
            assert _decoders(subject) == ["dedicated", "shared", "dedicated"]

    asyncio.run(scenario())
