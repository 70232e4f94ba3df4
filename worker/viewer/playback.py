"""A model of a viewer's player: what the frames that came would have looked like on a screen.

Frames arrive in chunks and are shown at a steady rate. The player begins when so many chunks are
there; when its buffer is empty it shows the last frame until the next chunk comes, and goes on at
once. It neither drops frames nor catches up. Pure arithmetic on given times, on one monotonic
clock in seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The picture stood still for longer than one frame."""

    began_at: float  # when the frame that was missing was due
    length_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the screen has shown up to one moment."""

    began_at: float | None  # when the first frame was shown; None before that
    level: int  # frames in the buffer, not yet shown
    lowest_level: int | None  # just before any chunk after the beginning; None if none came
    stalls: tuple[Stall, ...]  # in order; the last one may still go on

    @property
    def stalled_s(self) -> float:
        """All stalls together."""
        return sum(stall.length_s for stall in self.stalls)

    @property
    def longest_stall_s(self) -> float:
        """The longest of them; 0 if there was none."""
        return max((stall.length_s for stall in self.stalls), default=0.0)


class Playback:
    """The buffer of one player. It holds a stall for each chunk that came too late, and no more."""

    def __init__(self, *, rate_fps: float, num_start_chunks: int = 1) -> None:
        """Begin with `num_start_chunks` chunks in the buffer.

        Raises: ValueError if the rate is not above 0 or it would begin without a chunk.
        """
        if not rate_fps > 0 or num_start_chunks < 1:
            message = (
                f"rate_fps is {rate_fps}, num_start_chunks is {num_start_chunks}; "
                "allowed: above 0, 1 or more"
            )
            raise ValueError(message)
        self._period_s = 1 / rate_fps
        self._num_chunks_to_come = num_start_chunks
        self._num_frames_before_start = 0
        self._began_at: float | None = None
        self._last_at = float("-inf")
        # The stretch without a stall that is playing: when it began and how many frames it has.
        self._stretch_at = 0.0
        self._num_stretch_frames = 0
        self._lowest_level: int | None = None
        self._stalls: list[Stall] = []

    def add(self, at: float, *, num_frames: int) -> None:
        """A whole chunk is there.

        Raises: ValueError if time runs backwards or the chunk has no frame.
        """
        if not at >= self._last_at or num_frames < 1:
            message = f"{num_frames} frames at {at}, after a chunk at {self._last_at}"
            raise ValueError(message)
        self._last_at = at
        if self._began_at is None:
            self._fill(at, num_frames)
        else:
            self._go_on(at, num_frames)

    def reading(self, now: float) -> Reading:
        """What the screen has shown up to `now`, which is not before the last chunk."""
        stalls = list(self._stalls)
        if self._began_at is not None and now > self._empty_at:
            stalls.append(Stall(began_at=self._empty_at, length_s=now - self._empty_at))
        return Reading(
            began_at=self._began_at,
            level=self._level(now),
            lowest_level=self._lowest_level,
            stalls=tuple(stalls),
        )

    @property
    def _empty_at(self) -> float:
        """When the last frame has been on the screen for its time."""
        return self._stretch_at + self._num_stretch_frames * self._period_s

    def _fill(self, at: float, num_frames: int) -> None:
        self._num_frames_before_start += num_frames
        self._num_chunks_to_come -= 1
        if self._num_chunks_to_come == 0:
            self._began_at = self._stretch_at = at
            self._num_stretch_frames = self._num_frames_before_start

    def _go_on(self, at: float, num_frames: int) -> None:
        level = self._level(at)
        self._lowest_level = level if self._lowest_level is None else min(self._lowest_level, level)
        if at > self._empty_at:
            self._stalls.append(Stall(began_at=self._empty_at, length_s=at - self._empty_at))
            self._stretch_at = at
            self._num_stretch_frames = 0
        self._num_stretch_frames += num_frames

    def _level(self, now: float) -> int:
        if self._began_at is None:
            return self._num_frames_before_start
        # The frame of each beat is shown from that beat on, so that one is shown at the beginning.
        num_shown = int((now - self._stretch_at) / self._period_s) + 1
        return max(0, self._num_stretch_frames - num_shown)
