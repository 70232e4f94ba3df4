"""What a viewer counts of what came, by the vocabulary's words; pure arithmetic on given times.

Written apart from the worker's own measure, which it is there to check.
"""

from dataclasses import dataclass

from controlplane.contract import vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The measures of one session up to one moment."""

    num_frames: int  # of whole chunks
    num_first_chunk_frames: int
    streamed_s: float  # from the first chunk to the last, or to the close if the next was overdue
    num_late_chunks: int  # later than their frames last at 24 a second
    longest_stall_ms: float  # by which a chunk was late
    longest_gap_ms: float  # between two frames
    num_step_gaps: int  # chunks whose step does not follow that of the chunk before


class Arrivals:
    """Adds up frames and chunks. A chunk is there when its last frame is, as on the worker."""

    def __init__(self) -> None:
        self.first_frame_at: float | None = None
        self._last_frame_at = 0.0
        self._longest_gap_s = 0.0
        self._chunk_at: float | None = None  # the last one
        self._step = -1
        self._num_chunk_frames = 0
        self._num_frames = 0
        self._num_first_chunk_frames = 0
        self._streamed_s = 0.0
        self._num_late_chunks = 0
        self._longest_stall_s = 0.0
        self._num_step_gaps = 0

    def have_lasted(self, seconds: float) -> bool:
        """Whether a chunk is there, and the last one so long after the first."""
        return self._chunk_at is not None and self._streamed_s >= seconds

    def add_frame(self, at: float) -> None:
        """One frame is there."""
        if self.first_frame_at is None:
            self.first_frame_at = at
        else:
            self._longest_gap_s = max(self._longest_gap_s, at - self._last_frame_at)
        self._last_frame_at = at

    def add_chunk(self, at: float, *, num_frames: int, step: int) -> None:
        """All frames of one step are there."""
        self._num_step_gaps += step != self._step + 1
        self._step = step
        self._num_frames += num_frames
        if self._chunk_at is None:
            self._num_first_chunk_frames = num_frames
        else:
            self._note_gap(at - self._chunk_at, num_frames)
        self._chunk_at = at
        self._num_chunk_frames = num_frames

    def counts(self, now: float) -> Counts:
        """The measures as if the session closed at `now`: a chunk then overdue is a freeze."""
        gap_s = 0.0 if self._chunk_at is None else now - self._chunk_at
        stall_s = gap_s - self._num_chunk_frames / vocabulary.SLOW_FPS
        is_frozen = self._chunk_at is not None and stall_s > 0
        return Counts(
            num_frames=self._num_frames,
            num_first_chunk_frames=self._num_first_chunk_frames,
            streamed_s=self._streamed_s + (gap_s if is_frozen else 0.0),
            num_late_chunks=self._num_late_chunks + is_frozen,
            longest_stall_ms=max(self._longest_stall_s, stall_s if is_frozen else 0.0) * 1000,
            longest_gap_ms=self._longest_gap_s * 1000,
            num_step_gaps=self._num_step_gaps,
        )

    def _note_gap(self, gap_s: float, num_frames: int) -> None:
        stall_s = gap_s - num_frames / vocabulary.SLOW_FPS
        self._streamed_s += gap_s
        self._num_late_chunks += stall_s > 0
        self._longest_stall_s = max(self._longest_stall_s, stall_s)
