"""The model of a viewer's player, against one that goes frame by frame."""

from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.viewer.playback import Playback, Stall

# Whole sixty-fourths and powers of two, so that floats are exact and equality can be asked for.
gaps = st.integers(min_value=0, max_value=200).map(lambda whole: whole / 64)
chunks = st.lists(st.tuples(gaps, st.integers(min_value=1, max_value=6)), max_size=30)
rates = st.sampled_from([1, 2, 4, 8, 16, 32])
starts = st.integers(min_value=1, max_value=4)


@dataclass(frozen=True)
class Shown:
    """When each frame came and when it was on the screen."""

    came_at: list[Fraction]
    shown_at: list[Fraction]
    period: Fraction

    def level(self, now: Fraction) -> int:
        came = sum(at <= now for at in self.came_at)
        return came - sum(at <= now for at in self.shown_at)


def frame_by_frame(arrivals: list[tuple[float, int]], *, rate: int, start: int) -> Shown:
    """Each frame is shown a period after the one before, or when it comes."""
    period = Fraction(1, rate)
    came_at = [Fraction(at) for at, number in arrivals for _ in range(number)]
    shown_at: list[Fraction] = []
    if len(arrivals) >= start:
        begin = Fraction(arrivals[start - 1][0])
        for came in came_at:
            shown_at.append(max(came, shown_at[-1] + period if shown_at else begin))
    return Shown(came_at, shown_at, period)


def stalls(shown: Shown, now: Fraction) -> list[Stall]:
    ends = [*shown.shown_at[1:], now] if shown.shown_at else []
    found = []
    for before, after in zip(shown.shown_at, ends, strict=True):
        due = before + shown.period
        if after > due:
            found.append(Stall(began_at=float(due), length_s=float(after - due)))
    return found


@given(chunks=chunks, rate=rates, start=starts, rest=gaps)
def test_it_shows_what_a_player_shows_that_goes_frame_by_frame(
    chunks: list[tuple[float, int]], rate: int, start: int, rest: float
) -> None:
    """Stalls with their lengths, the level at every chunk and at the end."""
    subject = Playback(rate_fps=rate, num_start_chunks=start)
    arrivals: list[tuple[float, int]] = []
    now, levels = 0.0, []
    for gap, num_frames in chunks:
        now += gap
        before = frame_by_frame(arrivals, rate=rate, start=start)
        if before.shown_at:
            levels.append(before.level(Fraction(now)))
        subject.add(now, num_frames=num_frames)
        arrivals.append((now, num_frames))
    now += rest
    shown = frame_by_frame(arrivals, rate=rate, start=start)
    reading = subject.reading(now)
    assert reading.began_at == (float(shown.shown_at[0]) if shown.shown_at else None)
    assert list(reading.stalls) == stalls(shown, Fraction(now))
    assert reading.level == shown.level(Fraction(now))
    assert reading.lowest_level == min(levels, default=None)


@given(chunks=chunks, rate=rates, start=starts)
def test_no_frame_is_lost_and_no_time_is_unaccounted_for(
    chunks: list[tuple[float, int]], rate: int, start: int
) -> None:
    """From the first frame on, the screen shows a frame for its time or stands still."""
    subject = Playback(rate_fps=rate, num_start_chunks=start)
    now = 0.0
    for gap, num_frames in chunks:
        now += gap
        subject.add(now, num_frames=num_frames)
    reading = subject.reading(now)
    if reading.began_at is None:
        assert reading.level == sum(number for _, number in chunks)
        return
    played_s = now - reading.began_at - reading.stalled_s
    num_shown = sum(number for _, number in chunks) - reading.level
    assert num_shown - 1 <= played_s * rate <= num_shown


@given(chunks=chunks, rate=rates, start=starts)
def test_a_player_that_waits_for_more_stalls_no_longer(
    chunks: list[tuple[float, int]], rate: int, start: int
) -> None:
    """What a start-up buffer is for; it costs the wait before the first frame."""
    readings = []
    for num_start_chunks in (start, start + 1):
        subject = Playback(rate_fps=rate, num_start_chunks=num_start_chunks)
        now = 0.0
        for gap, num_frames in chunks:
            now += gap
            subject.add(now, num_frames=num_frames)
        readings.append(subject.reading(now))
    if readings[1].began_at is not None:
        assert readings[0].began_at is not None
        assert readings[1].began_at >= readings[0].began_at
        assert readings[1].stalled_s <= readings[0].stalled_s


@pytest.mark.parametrize(("rate_fps", "start"), [(0, 1), (-1, 1), (float("nan"), 1), (24, 0)])
def test_a_player_that_cannot_play_is_refused(rate_fps: float, start: int) -> None:
    """By name, with what is allowed."""
    with pytest.raises(ValueError, match=f"rate_fps is {rate_fps}, num_start_chunks is {start}"):
        Playback(rate_fps=rate_fps, num_start_chunks=start)


@pytest.mark.parametrize(("at", "num_frames"), [(0.5, 4), (float("nan"), 4), (2.0, 0)])
def test_what_cannot_have_come_is_refused(at: float, num_frames: int) -> None:
    """Time does not run backwards."""
    subject = Playback(rate_fps=24)
    subject.add(1.0, num_frames=4)
    with pytest.raises(ValueError, match="after a chunk at 1"):
        subject.add(at, num_frames=num_frames)
