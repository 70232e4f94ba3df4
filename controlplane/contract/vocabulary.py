"""Words and measures that worker, control plane, reports and pages share, each defined once.

Standard library only. A threshold is compared nowhere but in `is_slow`, `is_very_slow` and
`meets_floor`, so that a session at exactly 24.0 fps is the same session everywhere.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

CONTRACT_VERSION: Final = 1

# The source calls a session slow at 24 fps or less, and its canary asks for 24.0 or more: a session
# at exactly 24.0 is slow and satisfies the floor. Both thresholds are published figures.
SLOW_FPS: Final = 24.0
VERY_SLOW_FPS: Final = 23.5
FLOOR_FPS: Final = 24.0
# Sessions that streamed for less do not count in the slow rate; they do count as failures.
LEAST_STREAMED_S: Final = 1.0
# One chunk is four frames at 24 fps.
STEP_DEADLINE_MS: Final = 1000 * 4 / 24
# Upper bounds of the classes in which step times are counted, finer around the deadline, where a
# few milliseconds decide. They travel as counts alone: other bounds would be another field.
STEP_BOUNDS_MS: Final = (
    *(80.0, 100.0, 120.0, 130.0, 140.0, 145.0, 150.0, 155.0, 160.0, 163.0),
    STEP_DEADLINE_MS,
    *(170.0, 175.0, 180.0, 190.0, 200.0, 225.0, 250.0, 275.0, 300.0),
)

# As many heads with clamped numbers a process window names; its totals count all.
MAX_WORST_HEADS: Final = 10

# Names a peer chooses for itself (worker, fleet, flag, variant, arm): bounded, and safe to show.
NAME_PATTERN: Final = r"^[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?$"
MAX_INT64: Final = 2**63 - 1


class Outcome(StrEnum):
    """How a session ended."""

    COMPLETED = "completed"  # the viewer left, or the worker drained
    FAILED = "failed"  # the worker could not go on
    LOST = "lost"  # no end was ever recorded: set by the control plane only
    VIEWER_LIMITED = "viewer_limited"  # over 20 % of the time blocked on a full viewer socket


class Reason(StrEnum):
    """Why a session failed, a breaker tripped or a group of ranks was killed."""

    OUT_OF_MEMORY = "out_of_memory"
    NAN = "nan"
    RANK_DISAGREEMENT = "rank_disagreement"
    RANK_DIED = "rank_died"
    RANK_HUNG = "rank_hung"
    PROCESS_LOST = "process_lost"  # the incarnation died with the session open
    UNDERRUN = "underrun"  # the playback buffer is predicted to run dry
    LEASE_LAPSED = "lease_lapsed"  # nobody renewed the lease of an unproven variant
    BREAK_GLASS = "break_glass"  # someone on the machine forced the fallback
    DRAINED = "drained"


# One of these on an exposed process rolls its canary back at once.
HARD_STOPS: Final = frozenset({Reason.OUT_OF_MEMORY, Reason.NAN, Reason.RANK_DISAGREEMENT})

# Buffers of their own for so many first-forward lengths are growth; one buffer for all is not.
LEAST_RETAINED_LENGTHS: Final = 2

ARM_CANARY: Final = "canary"
ARM_CONTROL: Final = "control"


class EventName(StrEnum):
    """The `event_name` of an OTLP log record that is evidence."""

    SESSION_STARTED = "session.started"
    SESSION_WINDOW = "session.window"
    SESSION_ENDED = "session.ended"
    PROCESS_WINDOW = "process.window"


class ResourceKey(StrEnum):
    """Resource attributes that say who reports."""

    INCARNATION = "service.instance.id"
    FLEET = "steadyframe.fleet"
    WORKER = "steadyframe.worker"
    HARDWARE = "steadyframe.hardware"
    STACK = "steadyframe.stack"  # the digest; the parts travel with the registration


def session_fps(*, num_frames: int, num_first_chunk_frames: int, streamed_s: float) -> float | None:
    """Frames a second as the viewer had them, from the delivery of the first chunk.

    Args:
        num_frames: frames delivered, those of the first chunk included.
        num_first_chunk_frames: they arrive at once, so they start the clock and are not counted.
        streamed_s: seconds on the worker's monotonic clock from the delivery of the first chunk to
            that of the last, or to the close if a chunk was then overdue; less the time blocked on
            the viewer.

    Returns: frames a second, or None where nothing can be said: no time has passed, or a value is
        not a finite, sensible number. None is never a pass.
    """
    if not math.isfinite(streamed_s) or streamed_s <= 0:
        return None
    if num_first_chunk_frames < 0 or num_frames < num_first_chunk_frames:
        return None
    fps = (num_frames - num_first_chunk_frames) / streamed_s
    # Of the shortest time that a float can say the quotient is infinite.
    return fps if math.isfinite(fps) else None


def is_slow(fps: float) -> bool:
    """Whether a session at `fps` counts as slow; the threshold itself does."""
    return _finite(fps) <= SLOW_FPS


def is_very_slow(fps: float) -> bool:
    """Whether a session at `fps` counts as very slow; the threshold itself does."""
    return _finite(fps) <= VERY_SLOW_FPS


def meets_floor(fps: float, *, floor: float = FLOOR_FPS) -> bool:
    """Whether a session at `fps` satisfies a floor gate; the floor itself does."""
    return _finite(fps) >= _finite(floor)


def counts_for_rate(streamed_s: float) -> bool:
    """Whether a session streamed long enough to stand in the slow rate."""
    return _finite(streamed_s) >= LEAST_STREAMED_S


def runs(effective: Mapping[str, str], asked: Mapping[str, str]) -> bool:
    """Whether all of `asked` is effective; a build may have flags that nobody asks for."""
    return all(effective.get(flag) == variant for flag, variant in asked.items())


def steered(effective: Mapping[str, str], desired: Mapping[str, str]) -> dict[str, str]:
    """What a worker runs of the flags that it is told; all of them before it is told any."""
    return {flag: effective[flag] for flag in effective if not desired or flag in desired}


def telling(sets: Sequence[Mapping[str, str]]) -> frozenset[str]:
    """The flags by which `sets` differ; all of them where nothing tells the sets apart."""
    names = {name for flags in sets for name in flags}
    differing = {name for name in names if len({flags.get(name) for flags in sets}) > 1}
    return frozenset(differing or names)


def flags_digest(flags: Mapping[str, str]) -> str:
    """Short name of one set of flag values, equal on both sides: 16 hex digits."""
    canonical = "\n".join(f"{flag}={flags[flag]}" for flag in sorted(flags))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]


def stack_digest(parts: Mapping[str, str]) -> str:
    """Fingerprint of a software stack (torch, CUDA, driver, ...): 16 hex digits."""
    return flags_digest(parts)


def drawn_arm(session: str, *, salt: str, shares: Sequence[tuple[str, float]]) -> str:
    """The arm of `session`: a salted hash, so that any worker draws the same and nobody can choose.

    Args:
        session: id of the session.
        salt: of the experiment; another salt is another draw.
        shares: arms with their shares in [0, 1], which sum to 1.

    Raises: ValueError if there is no arm or the shares do not sum to 1.
    """
    if not shares or not math.isclose(sum(share for _, share in shares), 1.0, abs_tol=1e-9):
        message = f"arm shares must sum to 1, got {shares!r}"
        raise ValueError(message)
    digest = hashlib.sha256(f"{salt}\x00{session}".encode()).digest()
    # 53 bits: every value is exact as a float, and the draw is below 1.
    draw = (int.from_bytes(digest[:8], "big") >> 11) / 2**53
    reached = 0.0
    for arm, share in shares:
        reached += share
        if draw < reached:
            return arm
    return shares[-1][0]


def _finite(value: float) -> float:
    if not math.isfinite(value):
        message = f"only a finite number can be compared, got {value}: missing is not a measurement"
        raise ValueError(message)
    return value
