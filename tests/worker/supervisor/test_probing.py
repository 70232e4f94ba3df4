"""A probe on the worker: only without a session, told once, and the flags of before come back."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from controlplane.contract.messages import Probe, ProbeReport
from controlplane.contract.vocabulary import Reason
from tests.worker.agent.build import FALLBACK, FAST
from tests.worker.supervisor.fake_engine import FakeEngine
from tests.worker.supervisor.test_supervisor import Worker, settled, worker
from worker.engine.api import FaultKind, MemorySample

MIB = 2**20


class KeepingEngine(FakeEngine):
    """Keeps a buffer for each length it has run under the fast variant, until it leaves that."""

    def __init__(self, *, kept: int = 0, left: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.kept = kept
        self.left = left
        self.lengths: list[int] = []

    async def memory(self) -> MemorySample:
        is_fast = self._effective == FAST
        retained = dict.fromkeys(self.lengths, self.kept if is_fast else 0)
        total = self.kept * len(self.lengths) if is_fast else self.left * bool(self.lengths)
        return MemorySample(
            resident_bytes=1000, limit_bytes=None, flag_bytes={"fused_allreduce": total},
            retained_by_length=retained,
        )  # fmt: skip

    def chunks(self, session: str, *, first_forward_length: int, **fields: Any) -> Any:
        self.lengths.append(first_forward_length)
        return super().chunks(session, first_forward_length=first_forward_length, **fields)


def probe(name: str = "c-1-2", **changes: Any) -> Probe:
    base: dict[str, Any] = {
        "id": name,
        "canary": "c-1",
        "flag": "fused_allreduce",
        "flags": FAST,
        "lengths": [8, 16, 24, 32],
        "seed": 1,
        "retained_at_most": MIB,
    }
    return Probe.model_validate({**base, **changes})


async def want(subject: Worker, generation: int, asked: Probe | None) -> None:
    """The control plane wants the fallback, and `asked` of a worker without viewers."""
    await subject.want(generation, FALLBACK, probe=asked, is_admitting=asked is None)


async def until(condition: Callable[[], bool]) -> None:
    """Give the loop turns until `condition` holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it is the loop itself that is waited for
            await asyncio.sleep(0)


def told(subject: Worker) -> list[ProbeReport]:
    """Reports under way to the control plane."""
    return [one for one in subject.agent._reports._waiting if isinstance(one, ProbeReport)]


async def answered(subject: Worker) -> ProbeReport:
    await until(lambda: bool(told(subject)))
    await settled()
    (report,) = told(subject)
    return report


def test_every_length_is_run_under_the_variant_and_the_way_back_is_timed(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = KeepingEngine(kept=10)
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            report = await answered(subject)
            assert engine.lengths == [8, 16, 24, 32]
            assert engine.flags_at_first_forward == [FAST] * 4
            assert {one.length: one.retained_bytes for one in report.lengths} == dict.fromkeys(
                (8, 16, 24, 32), 10
            )
            assert (report.flag_bytes_before, report.flag_bytes_left) == (0, 0)
            assert report.rollback_ms is not None
            assert (report.fault, report.detail, report.canary) == (None, "", "c-1")
            assert engine.requests[-1][1] == FALLBACK

    asyncio.run(scenario())


def test_growth_ends_it_before_memory_does(tmp_path: Path) -> None:
    """The next length would show nothing new, and might cost the process."""

    async def scenario() -> None:
        engine = KeepingEngine(kept=MIB + 1, left=5)
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            report = await answered(subject)
            assert [one.length for one in report.lengths] == [8, 16]
            assert report.flag_bytes_left == 5
            assert engine._effective == FALLBACK

    asyncio.run(scenario())


def test_it_waits_for_the_viewer_to_leave(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = KeepingEngine()
        async with worker(tmp_path, engine=engine) as subject:
            viewing = asyncio.create_task(subject.watch(num_chunks=20))
            await until(lambda: len(engine.lengths) == 1)
            await want(subject, 7, probe())
            assert engine.requests == [] or engine.requests[-1][1] == FALLBACK
            assert len(engine.lengths) == 1
            await viewing
            assert len((await answered(subject)).lengths) == 4

    asyncio.run(scenario())


def test_no_viewer_is_taken_while_it_runs_and_the_next_one_is_afterwards(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path, engine=KeepingEngine()) as subject:
            await want(subject, 7, probe())
            refusal = subject.supervisor.refusal()
            assert refusal is not None
            await answered(subject)
            await want(subject, 8, None)
            assert (await subject.watch()).flags == FALLBACK

    asyncio.run(scenario())


def test_the_same_probe_is_not_run_again_and_another_one_is(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = KeepingEngine()
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            await answered(subject)
            await want(subject, 8, probe())
            await settled()
            assert len(engine.lengths) == 4
            await want(subject, 9, probe("c-1-5"))
            await until(lambda: len(told(subject)) == 2)
            assert [one.probe for one in told(subject)] == ["c-1-2", "c-1-5"]

    asyncio.run(scenario())


def test_a_probe_that_is_taken_back_ends_on_the_flags_of_before_and_is_not_told(
    tmp_path: Path,
) -> None:
    """Abort and stop-the-line do not wait for a measurement."""

    async def scenario() -> None:
        engine = KeepingEngine(holds_flips=True)
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            assert engine.requests[-1][1] == FAST
            await want(subject, 8, None)
            assert engine.requests[-1][1] == FALLBACK
            assert engine.lengths == []
            assert told(subject) == []

    asyncio.run(scenario())


def test_a_fault_is_what_came_of_it_and_trips_the_breaker(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = KeepingEngine(holds_flips=True)
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            engine.fail(FaultKind.OUT_OF_MEMORY)
            report = await answered(subject)
            assert report.fault is Reason.OUT_OF_MEMORY
            assert (report.lengths, report.rollback_ms) == ([], None)
            assert engine.launches[-1] == FALLBACK
            assert subject.agent.probe is None

    asyncio.run(scenario())


def test_flags_that_are_refused_are_told_as_no_measurement(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = KeepingEngine()
        engine.refuses.add("fused_steady")
        async with worker(tmp_path, engine=engine) as subject:
            await want(subject, 7, probe())
            report = await answered(subject)
            assert (report.lengths, report.rollback_ms, report.fault) == ([], None, None)
            assert report.detail == "the flags of the probe did not take effect"

    asyncio.run(scenario())


def test_a_variant_that_this_build_does_not_know_is_refused_with_the_state(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with worker(tmp_path, engine=KeepingEngine()) as subject:
            unknown = {"fused_allreduce": "fused_tomorrow"}
            await want(subject, 7, probe(flags=unknown))
            assert subject.agent.probe is None
            assert subject.agent.generation() == 0

    asyncio.run(scenario())
