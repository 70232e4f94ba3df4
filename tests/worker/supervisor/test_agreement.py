"""A real worker and a viewer beside it measure one session alike, whatever happens in it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.contract import vocabulary
from controlplane.contract.messages import DesiredState
from controlplane.contract.records import SessionEnded
from controlplane.contract.vocabulary import Outcome
from tests.worker import control_plane as planes
from tests.worker.control_plane import ControlPlaneOfTests
from tests.worker.supervisor.worker_process import running_worker
from worker import flags
from worker.viewer import drive
from worker.viewer.drive import Plan
from worker.viewer.script import Line, Pause
from worker.viewer.session import Seen

CHUNK_S = 4 / vocabulary.SLOW_FPS
CHUNK_FRAMES = 4
FOX = Line(step=6, kind="prompt", text="a red fox in the snow")
AUDIO = Line(step=9, kind="audio", features=(0.5, -0.5))


@pytest.fixture
def plane() -> Iterator[ControlPlaneOfTests]:
    desired = DesiredState(fleet="demo", worker="w1", generation=5, flags=flags.fallback())
    with planes.control_plane(desired) as plane:
        yield plane


def had_fps(record: SessionEnded) -> float | None:
    """As the viewer had it: what it kept the worker waiting is part of its time."""
    return vocabulary.session_fps(
        num_frames=record.num_frames,
        num_first_chunk_frames=record.num_first_chunk_frames,
        streamed_s=record.streamed_s + record.viewer_wait_s,
    )


def assert_agree(record: SessionEnded, seen: Seen) -> None:
    """Frames and times within one chunk; so the rates differ by no more than one chunk does."""
    assert record.session == seen.session
    assert abs(record.num_frames - seen.num_frames) <= CHUNK_FRAMES
    assert abs(record.streamed_s + record.viewer_wait_s - seen.streamed_s) < CHUNK_S
    worker_fps = had_fps(record)
    assert worker_fps is not None
    assert seen.fps is not None
    assert abs(worker_fps - seen.fps) < 2 * CHUNK_FRAMES / seen.streamed_s
    assert seen.num_step_gaps == 0


def watched(plane: ControlPlaneOfTests, tmp_path: Path, plan: Plan) -> tuple[SessionEnded, Seen]:
    """One session by the rules of `plan`, as the worker recorded it and as its viewer had it."""
    with running_worker(tmp_path / "w1", url=plane.url) as worker:
        summary = asyncio.run(drive.drive(worker.url, plan))
        plane.wait_for(lambda: len(plane.ended()) == 1)
    assert summary.errors == []
    return plane.ended()[0], summary.seen[0]


def test_with_another_prompt_in_mid_session(plane: ControlPlaneOfTests, tmp_path: Path) -> None:
    """It costs the worker some frames' time, and the viewer nothing that is not measured."""
    plan = Plan(num_sessions=1, seconds=3.0, lengths=[], prompt="a dog", lines=[FOX, AUDIO])
    record, seen = watched(plane, tmp_path, plan)
    assert_agree(record, seen)
    assert (record.outcome, record.first_forward_length) == (Outcome.COMPLETED, 2)
    assert len(seen.prompt_steps) == 1
    assert seen.prompt_steps[0] > FOX.step
    assert seen.rejections == ()
    # The worst of all chunks: beside other work one process is late by more than the other.
    assert abs(record.longest_stall_ms - seen.longest_stall_ms) < 2 * CHUNK_S * 1000


def test_with_a_viewer_whose_socket_is_slow_and_another_prompt_before_it(
    plane: ControlPlaneOfTests, tmp_path: Path
) -> None:
    """The worker knows that it waited for the viewer, and no frame is lost on the way."""
    plan = Plan(
        num_sessions=1,
        seconds=7.0,
        lengths=[],
        prompt="a dog",
        lines=[FOX],
        pauses=[Pause(step=10, seconds=4.0)],
        receive_bytes=4096,
    )
    record, seen = watched(plane, tmp_path, plan)
    assert_agree(record, seen)
    assert record.viewer_wait_s > 0.5
    assert (seen.paused_s, len(seen.prompt_steps)) == (4.0, 1)
    # Four seconds without a frame, which a player at 24 frames a second cannot hide.
    assert seen.playback.longest_stall_s > 2
