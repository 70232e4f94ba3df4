"""The supervisor's promises, with an engine that does what it is told and a real socket."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from controlplane.contract.records import ProcessWindow, SessionEnded
from controlplane.contract.telemetry import GpuReading
from controlplane.contract.vocabulary import Outcome, Reason
from tests.worker.agent import build
from tests.worker.agent.build import FALLBACK, FAST, MemoryControlPlane, desired, experiment
from tests.worker.supervisor.fake_engine import FakeEngine, FakeStartError
from worker.agent.agent import Agent
from worker.engine.api import FaultKind
from worker.engine.clamps import ClampSample, HeadCount
from worker.main.supervisor import Supervisor
from worker.server.viewer_server import ViewerServer
from worker.viewer import session
from worker.viewer.session import Ask, BusyError, Seen, ViewerError

RATE_FPS = 400.0  # so that a session of many chunks takes a blink
STEP_S = 4 / RATE_FPS


@dataclass(slots=True, kw_only=True)
class Worker:
    """Everything of one worker in one loop."""

    engine: FakeEngine
    agent: Agent
    supervisor: Supervisor
    server: ViewerServer
    plane: MemoryControlPlane
    url: str

    async def want(self, generation: int, flags: dict[str, str], **fields: Any) -> None:
        self.agent.on_desired(desired(generation, flags, **fields))
        await settled()

    async def watch(self, *, num_chunks: int = 5, **fields: Any) -> Seen:
        ask = Ask(first_forward_length=16, seed=1, seconds=num_chunks * STEP_S, **fields)
        return await session.watch(self.url, ask)

    def ended(self) -> list[SessionEnded]:
        return [r for _, r in self.plane.records if isinstance(r, SessionEnded)]


async def settled() -> None:
    """Let everything run that does not wait for time."""
    for _ in range(20):
        await asyncio.sleep(0)


@asynccontextmanager
async def worker(
    tmp_path: Path,
    *,
    engine: FakeEngine | None = None,
    gpus: list[GpuReading] | None = None,
    **config: Any,
) -> AsyncIterator[Worker]:
    plane = MemoryControlPlane(desired())
    loop = asyncio.get_running_loop()
    engine = engine or FakeEngine()
    # The loop's own clock, so that sessions have real times.
    with build.agent(tmp_path, plane=plane, clock=loop.time, **config) as agent:
        supervisor = Supervisor(
            engine, agent, length_bounds=(1, 48), window_s=0.01,
            start_errors=(FakeStartError,), randomness=random.Random(1), gpus=lambda: gpus,
        )  # fmt: skip
        # The answer to the registration: before it, no record is sent.
        agent.on_desired(desired(0, FALLBACK))
        agent._on_change = supervisor.attach(loop)
        server = ViewerServer(supervisor, rate_fps=RATE_FPS)
        port = await server.open(host="127.0.0.1", port=0)
        tasks = [
            asyncio.create_task(supervisor.watch_engine()),
            asyncio.create_task(supervisor.report_process()),
        ]
        try:
            await supervisor.bring_up()
            yield Worker(
                engine=engine, agent=agent, supervisor=supervisor, server=server,
                plane=plane, url=f"ws://127.0.0.1:{port}",
            )  # fmt: skip
        finally:
            supervisor.drain()
            await server.close()
            await supervisor.stop()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert engine.is_stopped


def test_desired_flags_go_to_the_engine_and_come_back_as_effective(tmp_path: Path) -> None:
    """With the control plane's generation, though the engine counts its own requests."""

    async def scenario() -> MemoryControlPlane:
        async with worker(tmp_path) as subject:
            await subject.want(7, FAST)
            await subject.want(8, FAST)
            assert [flags for _, flags in subject.engine.requests] == [FAST, FAST]
        return subject.plane

    plane = asyncio.run(scenario())
    told = [(report.generation, report.flags) for report in plane.effectives]
    assert told == [(0, FALLBACK), (7, FAST), (8, FAST)]
    assert {rank.generation for rank in plane.effectives[-1].ranks} == {8}


def test_a_flip_the_engine_refuses_is_reported_and_not_repeated(tmp_path: Path) -> None:
    """Not effective, so it never counts as flipped."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            subject.engine.refuses.add("fused_steady")
            await subject.want(7, FAST)
            subject.supervisor.follow()
            await settled()
        return subject

    subject = asyncio.run(scenario())
    refused = [report for report in subject.plane.effectives if report.refused]
    assert [(report.generation, report.flags) for report in refused] == [(7, FALLBACK)]
    assert "cannot allocate" in refused[0].refused
    assert len(subject.engine.requests) == 1


def test_every_session_runs_what_it_drew_from_its_first_step(tmp_path: Path) -> None:
    """The flip is made before the first forward, so that no step is non-compliant."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            await subject.want(7, FALLBACK, experiment=experiment(share=0.5))
            for number in range(8):
                name = f"session-{number}" if number % 2 else None
                await subject.watch(session=name)
                await settled()
        return subject

    subject = asyncio.run(scenario())
    ended = subject.ended()
    assert {record.arm for record in ended} == {"canary", "control"}
    assert all(record.num_non_compliant_steps == 0 for record in ended)
    assert [record.flags for record in ended] == subject.engine.flags_at_first_forward


def test_a_session_does_not_wait_for_ever_for_its_flip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The viewer comes first; the steps are counted as not compliant."""
    monkeypatch.setattr("worker.main.supervisor.FLIP_WAIT_S", 0.01)

    async def scenario() -> Worker:
        async with worker(tmp_path, engine=FakeEngine(holds_flips=True)) as subject:
            await subject.want(7, FAST)
            await subject.watch()
        return subject

    (ended,) = asyncio.run(scenario()).ended()
    assert ended.num_non_compliant_steps == ended.num_steps > 0


@pytest.mark.parametrize("kind", list(FaultKind))
def test_a_fault_leads_to_the_fallback_without_asking_anyone(
    tmp_path: Path, kind: FaultKind
) -> None:
    """Session failed with the reason, a new group at the fallback, one trip, no way back."""

    async def scenario() -> tuple[Worker, Seen, Seen]:
        async with worker(tmp_path) as subject:
            await subject.want(7, FAST)
            watching = asyncio.create_task(subject.watch(num_chunks=10_000))
            await asyncio.sleep(5 * STEP_S)
            subject.engine.fail(kind)
            failed = await watching
            await subject.want(7, FAST)
            healthy = await subject.watch()
        return subject, failed, healthy

    subject, failed, healthy = asyncio.run(scenario())
    assert (failed.outcome, failed.reason) == ("failed", kind.value)
    assert healthy.flags == FALLBACK
    assert subject.engine.launches == [FALLBACK, FALLBACK]
    (trip,) = subject.plane.trips
    assert (trip.reason, trip.rank, trip.session) == (Reason(kind.value), 1, failed.session)
    assert trip.flags == FAST
    assert [r.outcome for r in subject.ended()] == [Outcome.FAILED, Outcome.COMPLETED]


def test_a_newer_generation_closes_the_breaker(tmp_path: Path) -> None:
    """The control plane has seen the trip and asks otherwise."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            await subject.want(7, FAST)
            subject.engine.fail(FaultKind.NAN)
            await settled()
            await subject.want(8, FAST)
        return subject

    assert asyncio.run(scenario()).plane.effectives[-1].flags == FAST


def test_an_engine_that_does_not_start_is_tried_again_at_the_fallback(tmp_path: Path) -> None:
    """Stored flags may have been the reason; the control plane hears of it."""
    with build.agent(tmp_path) as before:
        before.on_desired(desired(6, FAST))

    async def scenario() -> Worker:
        async with worker(tmp_path, engine=FakeEngine(num_failing_starts=1)) as subject:
            pass
        return subject

    subject = asyncio.run(scenario())
    assert subject.engine.launches == [FAST, FALLBACK]
    assert subject.plane.trips[0].detail == "rank 1: no memory"


def test_an_engine_that_never_starts_is_one_trip_and_longer_and_longer_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the machine nor the control plane is kept busy with it."""
    monkeypatch.setattr("worker.main.supervisor.FIRST_RESTART_WAIT_S", 0.001)
    with build.agent(tmp_path) as before:
        before.on_desired(desired(6, FAST))

    async def scenario() -> Worker:
        async with worker(tmp_path, engine=FakeEngine(num_failing_starts=4)) as subject:
            pass
        return subject

    subject = asyncio.run(scenario())
    assert subject.engine.launches == [FAST, *[FALLBACK] * 4]
    assert len(subject.plane.trips) == 1
    # Three waits have been taken, so the next is drawn from below eight times the first.
    assert subject.supervisor._backoff.next_s() >= 0.004


def test_a_drain_by_the_control_plane_ends_the_session_as_completed(tmp_path: Path) -> None:
    """And undone, the worker serves again."""

    async def scenario() -> tuple[Worker, Seen]:
        async with worker(tmp_path) as subject:
            watching = asyncio.create_task(subject.watch(num_chunks=10_000))
            await asyncio.sleep(5 * STEP_S)
            await subject.want(7, FALLBACK, is_draining=True)
            drained = await watching
            with pytest.raises(BusyError, match="draining"):
                await subject.watch()
            await subject.want(8, FALLBACK)
            await subject.watch()
        return subject, drained

    subject, drained = asyncio.run(scenario())
    assert (drained.outcome, drained.reason) == ("completed", "drained")
    assert [r.outcome for r in subject.ended()] == [Outcome.COMPLETED] * 2


def test_process_windows_tell_memory_and_lengths(tmp_path: Path) -> None:
    """A leak shows as bytes kept for each length."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            await asyncio.sleep(0.05)
        return subject

    windows = [r for _, r in asyncio.run(scenario()).plane.records if isinstance(r, ProcessWindow)]
    assert windows[0].resident_bytes == 1000
    assert windows[0].flag_bytes == {"fused_allreduce": 7}
    assert [(each.length, each.retained_bytes) for each in windows[0].lengths] == [(16, 100)]


def test_process_windows_tell_steps_clamped_numbers_and_gpus(tmp_path: Path) -> None:
    """Of the times the engine gives each chunk, and not of how it was paced to its viewer."""
    engine = FakeEngine()
    worst = HeadCount(block=1, head=2, num_keys=5, num_values=0)
    engine.clamps = ClampSample(num_keys=7, num_values=1, worst=(worst,))
    gpus = [GpuReading(index=0, power_w=600.0), GpuReading(index=1, power_w=12.5)]

    async def scenario() -> Worker:
        async with worker(tmp_path, engine=engine, gpus=gpus) as subject:
            await subject.watch()
            await subject.supervisor._write_process_window()
        return subject

    subject = asyncio.run(scenario())
    (ended,) = subject.ended()
    *_, window = [r for _, r in subject.plane.records if isinstance(r, ProcessWindow)]
    assert window.steps is not None
    assert window.steps.num_steps == ended.num_steps - 1  # the first has the first forward
    assert window.steps.num_at_most[0] == window.steps.num_steps  # of 20 + 3 + 1 ms
    assert window.steps.decoder_ms == 3 * window.steps.num_steps
    assert window.clamps is not None
    assert (window.clamps.num_keys, window.clamps.worst[0].head) == (7, 2)
    assert (window.gpus, window.power_w) == (gpus, 612.5)


def test_what_a_worker_cannot_know_is_not_in_its_process_windows(tmp_path: Path) -> None:
    async def scenario() -> Worker:
        async with worker(tmp_path, gpus=[GpuReading(index=0)]) as subject:
            await subject.supervisor._write_process_window()
        return subject

    *_, window = [
        r for _, r in asyncio.run(scenario()).plane.records if isinstance(r, ProcessWindow)
    ]
    assert (window.steps, window.clamps, window.power_w) == (None, None, None)
    assert window.gpus == [GpuReading(index=0)]


def test_a_second_viewer_is_refused_with_code_and_reason(tmp_path: Path) -> None:
    """One session at a time; the viewer may try again."""

    async def scenario() -> None:
        async with worker(tmp_path) as subject:
            watching = asyncio.create_task(subject.watch(num_chunks=50))
            await asyncio.sleep(5 * STEP_S)
            with pytest.raises(BusyError, match="busy: a session is running"):
                await subject.watch()
            assert (await watching).outcome == "left"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{}", "neither given; allowed: either prompt or first_forward_length"),
        ('{"first_forward_length": 9, "prompt": "a"}', "both given; allowed: either"),
        ('{"prompt": " "}', "prompt: Value error, no word in it"),
        ('{"first_forward_length": 49}', "first_forward_length is 49, allowed: 1 to 48"),
        ('{"first_forward_length": 9, "session": "a b"}', "session: String should match"),
        ("hello", "Invalid JSON"),
    ],
)
def test_a_bad_request_is_refused_and_leaves_no_session(
    tmp_path: Path, text: str, sentence: str
) -> None:
    """A wrong viewer must not count as a failed session."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            async with connect(subject.url) as viewer:
                await viewer.send(text)
                answer = await viewer.recv()
                assert "bad_request" in str(answer)
                assert sentence in str(answer)
                with pytest.raises(ConnectionClosed):
                    await viewer.recv()
            assert viewer.close_code == 1008
            with pytest.raises(ViewerError, match="bad_request"):
                await session.watch(subject.url, Ask(first_forward_length=99, seed=1, seconds=1))
        return subject

    assert asyncio.run(scenario()).ended() == []


def test_a_viewer_that_vanishes_ends_its_session_as_completed(tmp_path: Path) -> None:
    """No goodbye is needed, and the next viewer is served."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            async with connect(subject.url) as viewer:
                await viewer.send('{"first_forward_length": 9}')
                await viewer.recv()
                viewer.transport.abort()
            await subject.watch()
        return subject

    assert [r.outcome for r in asyncio.run(scenario()).ended()] == [Outcome.COMPLETED] * 2


def test_plain_http_on_the_same_port(tmp_path: Path) -> None:
    """For probes and for a page that shows what the worker streams."""

    async def scenario() -> None:
        async with worker(tmp_path) as subject:
            base = subject.url.replace("ws:", "http:")
            async with httpx.AsyncClient(base_url=base, trust_env=False) as client:
                assert (await client.get("/livez")).status_code == 200
                assert (await client.get("/readyz")).status_code == 200
                assert (await client.get("/preview.jpg")).status_code == 404
                await subject.watch()
                preview = await client.get("/preview.jpg")
                assert preview.headers["Content-Type"] == "image/jpeg"
                assert preview.content.startswith(b"jpeg")
                await subject.want(7, FALLBACK, is_admitting=False)
                assert (await client.get("/readyz")).status_code == 503
                assert (await client.get("/livez")).status_code == 200

    asyncio.run(scenario())


def test_worker_and_viewer_agree_on_the_rate(tmp_path: Path) -> None:
    """Within one chunk over the duration."""

    async def scenario() -> tuple[SessionEnded, Seen]:
        async with worker(tmp_path) as subject:
            seen = await subject.watch(num_chunks=60)
        return subject.ended()[0], seen

    ended, seen = asyncio.run(scenario())
    assert abs(ended.num_frames - seen.num_frames) <= 8
    assert abs(ended.streamed_s - seen.streamed_s) <= 4 / 24
