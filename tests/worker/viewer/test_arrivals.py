"""The viewer's own counting, against the worker's meter given the same deliveries."""

import math

from hypothesis import given
from hypothesis import strategies as st

from worker.agent.measure import Delivery, Meter
from worker.viewer.arrivals import Arrivals

gaps = st.floats(min_value=0, max_value=3)
chunks = st.lists(st.tuples(gaps, st.integers(min_value=1, max_value=6)), max_size=30)
FLAGS = {"fused_allreduce": "nccl"}


@given(chunks=chunks, rest=gaps)
def test_viewer_and_worker_count_alike_what_came_alike(
    chunks: list[tuple[float, int]], rest: float
) -> None:
    """Two implementations of one vocabulary: frames, stream time, stalls, a freeze at the end."""
    viewer, worker = Arrivals(), Meter(FLAGS)
    now = 10.0
    for step, (gap, num_frames) in enumerate(chunks):
        now += gap
        viewer.add_chunk(now, num_frames=num_frames, step=step)
        worker.add(Delivery(num_frames=num_frames, at=now, flags=FLAGS))
    counts, reading = viewer.counts(now + rest), worker.reading(now=now + rest)
    assert counts.num_frames == reading.num_frames
    assert counts.num_first_chunk_frames == reading.num_first_chunk_frames
    assert counts.num_step_gaps == 0
    assert math.isclose(counts.streamed_s, reading.streamed_s, abs_tol=1e-9)
    assert math.isclose(counts.longest_stall_ms, reading.longest_stall_ms, abs_tol=1e-6)
    assert counts.num_late_chunks == reading.num_late_chunks


def test_a_step_that_is_left_out_or_comes_twice_is_a_gap() -> None:
    """A lost step looks like a stall otherwise, a repeated one like nothing at all."""
    arrivals = Arrivals()
    for at, step in enumerate((0, 1, 3, 3, 4)):
        arrivals.add_chunk(at, num_frames=4, step=step)
    assert arrivals.counts(5.0).num_step_gaps == 2


def test_nothing_is_counted_before_the_first_chunk() -> None:
    """A viewer that waits has no rate, and is not frozen yet."""
    counts = Arrivals().counts(100.0)
    assert (counts.num_frames, counts.streamed_s, counts.num_late_chunks) == (0, 0.0, 0)
