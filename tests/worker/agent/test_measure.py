"""The measures of a session; numbers worked out by hand from architecture section 1."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.worker.agent.build import FALLBACK, FAST
from worker.agent.measure import Delivery, Meter, Parts

CHUNK_S = 4 / 25


def chunk(at: float, *, wait_s: float = 0.0, flags: Mapping[str, str] = FALLBACK) -> Delivery:
    return Delivery(num_frames=4, at=at, viewer_wait_s=wait_s, flags=flags)


def metered(times: list[float]) -> Meter:
    meter = Meter(FALLBACK)
    for at in times:
        meter.add(chunk(at))
    return meter


def test_frames_of_the_first_chunk_start_the_clock_and_are_not_counted() -> None:
    """(4 * 51 - 4) frames in 50 chunk periods of 0.16 s are 25 fps exactly."""
    reading = metered([7 + i * CHUNK_S for i in range(51)]).reading(now=7 + 50 * CHUNK_S)
    assert reading.num_frames == 204
    assert reading.streamed_s == pytest.approx(8.0)
    assert reading.fps == pytest.approx(25.0)


def test_a_session_without_a_second_chunk_has_no_rate() -> None:
    """None is not a pass and not a failure."""
    assert metered([3.0]).reading(now=3.1).fps is None
    assert Meter(FALLBACK).reading(now=3.0).fps is None


def test_a_final_freeze_counts() -> None:
    """25 chunks in 4 s, then 2 s of nothing: 100 frames in 6 s."""
    meter = metered([i * CHUNK_S for i in range(26)])
    reading = meter.reading(now=6.0)
    assert reading.streamed_s == pytest.approx(6.0)
    assert reading.fps == pytest.approx(100 / 6)
    assert reading.longest_stall_ms == pytest.approx(2000 - 4000 / 24)
    assert reading.num_late_chunks == 1
    assert meter.segments(now=6.0)[-1].streamed_s == pytest.approx(6.0)


def test_a_close_before_the_next_chunk_is_due_adds_no_time() -> None:
    """Nobody waited for that chunk: it was not late yet."""
    meter = metered([0.0, 0.16])
    assert meter.reading(now=0.16 + 4 / 24 - 0.001).streamed_s == pytest.approx(0.16)


def test_a_stall_in_the_middle_stays_in() -> None:
    """Resets and prompt changes are what the viewer has, whatever the cause."""
    reading = metered([0.0, 0.16, 1.16, 1.32]).reading(now=1.32)
    assert reading.streamed_s == pytest.approx(1.32)
    assert reading.num_late_chunks == 1
    assert reading.longest_stall_ms == pytest.approx(1000 - 4000 / 24)


def test_time_blocked_on_the_viewer_is_taken_out_and_reported() -> None:
    """A slow phone must not look like a slow kernel."""
    meter = metered([0.0, 0.16])
    meter.add(chunk(1.32, wait_s=1.0))
    reading = meter.reading(now=1.32)
    assert reading.streamed_s == pytest.approx(0.32)
    assert reading.viewer_wait_s == pytest.approx(1.0)
    assert reading.num_late_chunks == 0
    assert reading.fps == pytest.approx(25.0)


@pytest.mark.parametrize(("wait_s", "is_limited"), [(0.24, False), (0.27, True)])
def test_more_than_a_fifth_of_the_time_blocked_is_viewer_limited(
    wait_s: float, *, is_limited: bool
) -> None:
    """0.25 of 1.25 s is a fifth."""
    meter = metered([0.0, 0.5])
    meter.add(chunk(1.0 + wait_s, wait_s=wait_s))
    assert meter.reading(now=1.0 + wait_s).is_viewer_limited is is_limited


def test_a_viewer_that_blocks_now_is_no_freeze_of_ours() -> None:
    """A window written in the middle of a blocked send must not raise an alarm."""
    reading = metered([0.0, 0.16]).reading(now=3.2, pending_wait_s=3.0)
    assert reading.streamed_s == pytest.approx(0.16)
    assert reading.viewer_wait_s == pytest.approx(3.0)


def test_a_wait_before_the_first_chunk_is_none_of_the_streams_time() -> None:
    """The clock starts with the first chunk."""
    meter = Meter(FALLBACK)
    meter.add(chunk(5.0, wait_s=4.0))
    assert meter.reading(now=5.0).viewer_wait_s == 0
    assert meter.reading(now=5.0).streamed_s == 0


def test_worst_second_is_of_whole_seconds() -> None:
    """Six chunks, then one second with a single chunk, then a running one that does not count."""
    times = [0.0, 0.16, 0.32, 0.48, 0.64, 0.8, 0.96, 1.5, 2.1]
    assert metered(times).reading(now=2.1).worst_second_frames == 4
    assert metered(times[:5]).reading(now=0.64).worst_second_frames is None
    assert metered([0.0, 0.5, 3.2]).reading(now=3.2).worst_second_frames == 0


def test_a_flip_begins_a_segment_and_counts_steps_that_were_not_as_drawn() -> None:
    """A mixed session shows where it changed, and is never healthy evidence."""
    meter = metered([0.0, 0.16])
    meter.add(chunk(0.32, flags=FAST))
    meter.add(chunk(0.48, flags=FAST))
    segments = meter.segments(now=0.48)
    assert [(s.flags, s.num_frames) for s in segments] == [(FALLBACK, 4), (FAST, 8)]
    assert [s.streamed_s for s in segments] == pytest.approx([0.16, 0.32])
    assert meter.reading(now=0.48).num_non_compliant_steps == 2


def test_part_means_are_over_the_steps_that_told_them() -> None:
    """A step of a foreign server without parts must not pull the mean to zero."""
    meter = metered([0.0])
    for at, diffusion_ms in ((0.16, 100.0), (0.32, 120.0)):
        parts = Parts(diffusion_ms=diffusion_ms, reduce_ms=10, decoder_ms=5, encode_ms=1)
        meter.add(Delivery(num_frames=4, at=at, flags=FALLBACK, parts=parts))
    assert meter.part_means()["diffusion_ms_mean"] == pytest.approx(110)
    assert metered([0.0]).part_means() == {}


def test_time_that_runs_backwards_is_refused() -> None:
    """A wrong clock must not become a fast session."""
    with pytest.raises(ValueError, match="before the last"):
        metered([1.0, 0.5])


@settings(deadline=None, max_examples=60)
@given(gaps=st.lists(st.floats(0, 5), max_size=40), rest=st.floats(0, 10))
def test_readings_never_shrink_and_segments_add_up(gaps: list[float], rest: float) -> None:
    """Counters are cumulative: the control plane takes the highest seq for the whole truth."""
    meter = Meter(FALLBACK)
    at, before = 0.0, 0.0
    for number, gap in enumerate([0.0, *gaps]):
        at += gap
        meter.add(chunk(at, flags=(FALLBACK, FAST)[number // 3 % 2]))
        streamed_s = meter.reading(now=at).streamed_s
        assert streamed_s >= before - 1e-9
        before = streamed_s
    reading = meter.reading(now=at + rest)
    segments = meter.segments(now=at + rest)
    num_counted = reading.num_frames - reading.num_first_chunk_frames
    assert sum(s.num_frames for s in segments) == num_counted
    assert sum(s.streamed_s for s in segments) == pytest.approx(reading.streamed_s)
