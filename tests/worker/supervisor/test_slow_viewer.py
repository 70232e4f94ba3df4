"""Chunks that come late and viewers that read late, with an engine that does what it is told."""

import asyncio
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.asyncio.client import connect

from tests.worker.supervisor.test_supervisor import STEP_S, Worker, worker
from worker.viewer.script import Pause
from worker.viewer.session import Seen

ASK = '{"first_forward_length": 9, "seed": 3}'


async def small_socket(url: str) -> socket.socket:
    """Connected, with a receive buffer of the least size that the system gives."""
    address = urlsplit(url)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    small.setblocking(False)  # noqa: FBT003 - the standard library's signature
    await asyncio.get_running_loop().sock_connect(small, (address.hostname, address.port))
    return small


def test_a_chunk_that_is_held_up_is_late_for_worker_and_viewer_and_stalls_the_player(
    tmp_path: Path,
) -> None:
    """One stall, of one length, on both sides of the socket."""

    async def scenario() -> tuple[Worker, Seen]:
        async with worker(tmp_path) as subject:
            subject.engine.holds[5] = 1.5
            seen = await subject.watch(num_chunks=60)
        return subject, seen

    subject, seen = asyncio.run(scenario())
    (ended,) = subject.ended()
    assert seen.num_late_chunks >= 1
    assert ended.num_late_chunks >= 1
    assert seen.longest_stall_ms > 1000
    assert abs(ended.longest_stall_ms - seen.longest_stall_ms) < 4 / 24 * 1000
    assert abs(ended.streamed_s - seen.streamed_s) < 4 / 24
    # Its first chunks came in a blink, so that the player had frames for most of a second.
    assert 0 < seen.playback.longest_stall_s < seen.longest_gap_ms / 1000 - 0.2


def test_a_viewer_that_reads_nothing_for_a_while_loses_no_frame(tmp_path: Path) -> None:
    """Frames wait for it; what it had is what the worker counted, waits included."""

    async def scenario() -> tuple[Worker, Seen]:
        async with worker(tmp_path) as subject:
            pause = Pause(step=10, seconds=0.5)
            watching = asyncio.create_task(subject.watch(num_chunks=10_000, pauses=[pause]))
            await asyncio.sleep(1.0 + 60 * STEP_S)
            await subject.want(7, {"fused_allreduce": "nccl"}, is_draining=True)
            seen = await watching
        return subject, seen

    subject, seen = asyncio.run(scenario())
    (ended,) = subject.ended()
    assert (seen.outcome, seen.paused_s, seen.num_step_gaps) == ("completed", 0.5, 0)
    # The last chunk may have been cut off by the end.
    assert 0 <= ended.num_frames - seen.num_frames <= 4
    had_s = ended.streamed_s + ended.viewer_wait_s
    assert abs(had_s - seen.streamed_s) < 4 / 24


@pytest.mark.parametrize("num_frame_bytes", [1024, 16 * 1024])
def test_of_frames_that_have_not_left_the_machine_hardly_any_count_as_delivered(
    tmp_path: Path, num_frame_bytes: int
) -> None:
    """The system would take megabytes for a viewer that reads nothing."""

    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            subject.engine.num_frame_bytes = num_frame_bytes
            async with connect(
                subject.url, sock=await small_socket(subject.url), max_queue=1
            ) as viewer:
                await viewer.send(ASK)
                num_chunks = -1
                # Until it takes no more; at 400 frames a second that is soon.
                while subject.engine.num_chunks > num_chunks:
                    num_chunks = subject.engine.num_chunks
                    await asyncio.sleep(0.3)
                viewer.transport.abort()
        return subject

    subject = asyncio.run(scenario())
    # 64 KiB here, the chunk that is being sent, and what little the viewer's side takes. Without a
    # bound 1.6 MiB were measured, which at a kibibyte a frame is a minute of video.
    assert subject.engine.num_chunks * 4 * num_frame_bytes < 256 * 1024
