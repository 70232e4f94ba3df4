"""The measures of one session, from the deliveries of its chunks; pure arithmetic on given times.

Session fps itself is computed in `contract.vocabulary`; here are its ingredients.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from controlplane.contract import vocabulary
from controlplane.contract.records import Segment

VIEWER_LIMITED_SHARE = 0.2
# A record holds no more segments; a session that flips more often than this adds to its last one.
MAX_SEGMENTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Where the time of one step went, in milliseconds."""

    diffusion_ms: float
    reduce_ms: float
    decoder_ms: float
    encode_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One chunk as it reached the viewer's socket."""

    num_frames: int
    at: float  # monotonic seconds, when its last frame was handed over
    flags: Mapping[str, str]  # effective for its step
    viewer_wait_s: float = 0.0  # since the delivery before, blocked on a full viewer socket
    parts: Parts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The counters at one moment; names as in the records."""

    num_frames: int
    num_first_chunk_frames: int
    streamed_s: float
    viewer_wait_s: float
    num_late_chunks: int
    longest_stall_ms: float
    worst_second_frames: int | None
    num_steps: int
    num_non_compliant_steps: int

    @property
    def fps(self) -> float | None:
        """Session fps so far; None while nothing can be said."""
        return vocabulary.session_fps(
            num_frames=self.num_frames,
            num_first_chunk_frames=self.num_first_chunk_frames,
            streamed_s=self.streamed_s,
        )

    @property
    def is_viewer_limited(self) -> bool:
        """Whether the viewer's socket, not the worker, set the pace for too long."""
        whole_s = self.streamed_s + self.viewer_wait_s
        return whole_s > 0 and self.viewer_wait_s / whole_s > VIEWER_LIMITED_SHARE


class Meter:
    """Adds up deliveries. Stream time is monotonic time since the first, less viewer waits."""

    def __init__(self, drawn: Mapping[str, str]) -> None:
        self._drawn = dict(drawn)
        self._first_at: float | None = None
        self._last_at = 0.0
        self._last_num_frames = 0
        self._num_frames = 0
        self._num_first_chunk_frames = 0
        self._viewer_wait_s = 0.0
        self._num_late_chunks = 0
        self._longest_stall_s = 0.0
        self._num_steps = 0
        self._num_non_compliant_steps = 0
        self._seconds = _WholeSeconds()
        self._segments: list[Segment] = []
        self._sums = [0.0, 0.0, 0.0, 0.0]
        self._num_timed_steps = 0

    def add(self, delivery: Delivery) -> None:
        """Count one chunk.

        Raises: ValueError if time runs backwards or the chunk has no frame.
        """
        if delivery.num_frames < 1 or delivery.viewer_wait_s < 0:
            message = f"a chunk has frames and a wait is not negative, got {delivery}"
            raise ValueError(message)
        if self._first_at is None:
            self._begin(delivery)
        else:
            self._continue(delivery)
        self._num_steps += 1
        self._num_non_compliant_steps += dict(delivery.flags) != self._drawn
        self._add_parts(delivery.parts)

    def reading(self, *, now: float, pending_wait_s: float = 0.0) -> Reading:
        """The counters as if the session closed at `now`: a chunk then overdue is a freeze.

        `pending_wait_s` is what the viewer has kept us waiting since the last delivery.
        """
        freeze_s = self._freeze_s(now - pending_wait_s)
        streamed_s = self._stream_time(self._last_at) + freeze_s
        stall_s = max(self._longest_stall_s, freeze_s - self._deadline_s if freeze_s else 0.0)
        return Reading(
            num_frames=self._num_frames,
            num_first_chunk_frames=self._num_first_chunk_frames,
            streamed_s=streamed_s,
            viewer_wait_s=self._viewer_wait_s + (pending_wait_s if self._num_frames else 0.0),
            num_late_chunks=self._num_late_chunks + (freeze_s > 0),
            longest_stall_ms=stall_s * 1000,
            worst_second_frames=self._seconds.worst_by(streamed_s),
            num_steps=self._num_steps,
            num_non_compliant_steps=self._num_non_compliant_steps,
        )

    def part_means(self) -> dict[str, float]:
        """Mean of each part over the steps that told it, by the names of the records."""
        if self._num_timed_steps == 0:
            return {}
        names = ("diffusion_ms_mean", "reduce_ms_mean", "decoder_ms_mean", "encode_ms_mean")
        return {
            name: total / self._num_timed_steps
            for name, total in zip(names, self._sums, strict=True)
        }

    def segments(self, *, now: float, pending_wait_s: float = 0.0) -> list[Segment]:
        """Stretches under one set of flags, in order; a final freeze belongs to the last."""
        freeze_s = self._freeze_s(now - pending_wait_s)
        if not self._segments or not freeze_s:
            return list(self._segments)
        last = self._segments[-1]
        frozen = last.model_copy(update={"streamed_s": last.streamed_s + freeze_s})
        return [*self._segments[:-1], frozen]

    @property
    def _deadline_s(self) -> float:
        return self._last_num_frames / vocabulary.SLOW_FPS

    def _begin(self, delivery: Delivery) -> None:
        # A wait before the clock starts is none of the stream's time.
        self._first_at = delivery.at
        self._last_at = delivery.at
        self._num_first_chunk_frames = delivery.num_frames
        self._num_frames = delivery.num_frames
        self._last_num_frames = delivery.num_frames
        # Its frames start the clock, so they are of no segment: counted, they would make the rate
        # of a short one look better than it was.
        self._add_to_segment(delivery, num_frames=0, streamed_s=0.0)

    def _continue(self, delivery: Delivery) -> None:
        passed_s = delivery.at - self._last_at
        if passed_s < 0:
            message = f"a chunk was delivered at {delivery.at}, before the last at {self._last_at}"
            raise ValueError(message)
        wait_s = min(delivery.viewer_wait_s, passed_s)
        gap_s = passed_s - wait_s
        stall_s = gap_s - delivery.num_frames / vocabulary.SLOW_FPS
        self._num_late_chunks += stall_s > 0
        self._longest_stall_s = max(self._longest_stall_s, stall_s)
        self._viewer_wait_s += wait_s
        self._last_at = delivery.at
        self._num_frames += delivery.num_frames
        self._last_num_frames = delivery.num_frames
        self._seconds.add(delivery.num_frames, at_s=self._stream_time(delivery.at))
        self._add_to_segment(delivery, num_frames=delivery.num_frames, streamed_s=gap_s)

    def _stream_time(self, at: float) -> float:
        return (
            0.0 if self._first_at is None else max(0.0, at - self._first_at - self._viewer_wait_s)
        )

    def _freeze_s(self, now: float) -> float:
        """Time since the last chunk, if the next was overdue at `now`; else 0."""
        if self._first_at is None or now - self._last_at <= self._deadline_s:
            return 0.0
        return now - self._last_at

    def _add_to_segment(self, delivery: Delivery, *, num_frames: int, streamed_s: float) -> None:
        flags = dict(delivery.flags)
        is_same = bool(self._segments) and self._segments[-1].flags == flags
        if not is_same and len(self._segments) < MAX_SEGMENTS:
            self._segments.append(Segment(flags=flags, num_frames=0, streamed_s=0.0))
        last = self._segments[-1]
        self._segments[-1] = Segment(
            flags=last.flags,
            num_frames=last.num_frames + num_frames,
            streamed_s=last.streamed_s + streamed_s,
        )

    def _add_parts(self, parts: Parts | None) -> None:
        if parts is None:
            return
        values = (parts.diffusion_ms, parts.reduce_ms, parts.decoder_ms, parts.encode_ms)
        self._sums = [total + value for total, value in zip(self._sums, values, strict=True)]
        self._num_timed_steps += 1


class _WholeSeconds:
    """Fewest frames delivered in any whole second of stream time, in constant memory."""

    def __init__(self) -> None:
        self._second = 0
        self._num_frames = 0
        self._worst: int | None = None

    def add(self, num_frames: int, *, at_s: float) -> None:
        self._worst = self.worst_by(at_s)
        if int(at_s) > self._second:
            self._second = int(at_s)
            self._num_frames = 0
        self._num_frames += num_frames

    def worst_by(self, at_s: float) -> int | None:
        passed = int(at_s) - self._second
        if passed <= 0:
            return self._worst
        fewest = self._num_frames if passed == 1 else 0
        return fewest if self._worst is None else min(self._worst, fewest)
