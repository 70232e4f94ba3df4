"""How much of the work on a chunk was hidden behind the diffusion of later ones.

Intervals of the machine-wide monotonic clock, which all processes of a host share; nothing here
reads it. Rank 0 denoises one chunk at a time, so its intervals do not overlap each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True)
class Interval:
    """A stretch of work, in nanoseconds."""

    begun_ns: int
    ended_ns: int  # not before it began

    @property
    def length_ns(self) -> int:
        """How long it took."""
        return self.ended_ns - self.begun_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """One stretch of work, split; the two add up to what it took."""

    exposed_ms: float  # it ran alone: a step takes so much longer
    hidden_ms: float  # it ran beside the diffusion of another chunk


def overlap(busy: Interval, diffusions: Iterable[Interval]) -> Overlap:
    """`busy` split by whether one of `diffusions` ran, of which no two overlap."""
    hidden_ns = sum(_common_ns(busy, each) for each in diffusions)
    return Overlap(
        exposed_ms=(busy.length_ns - hidden_ns) / _NS_PER_MS, hidden_ms=hidden_ns / _NS_PER_MS
    )


def _common_ns(one: Interval, other: Interval) -> int:
    begun_ns = max(one.begun_ns, other.begun_ns)
    return max(0, min(one.ended_ns, other.ended_ns) - begun_ns)


class Diffusions:
    """What the decoder has heard of rank 0's diffusion, as far back as it can still hide work."""

    def __init__(self) -> None:
        """Nothing has been heard."""
        self._ended: list[Interval] = []
        self._begun_ns: int | None = None

    def begin(self, at_ns: int) -> None:
        """Rank 0 has begun to denoise."""
        self._begun_ns = at_ns

    def end(self, at_ns: int) -> None:
        """It has the latent."""
        assert self._begun_ns is not None, "a diffusion ended that never began"
        self._ended.append(Interval(self._begun_ns, at_ns))
        self._begun_ns = None

    def until(self, now_ns: int) -> tuple[Interval, ...]:
        """Those that are over, and the one that goes on at `now_ns` as far as it has come."""
        if self._begun_ns is None or self._begun_ns >= now_ns:
            return tuple(self._ended)
        return (*self._ended, Interval(self._begun_ns, now_ns))

    def forget_before(self, at_ns: int) -> None:
        """Drop what was over by then."""
        self._ended = [each for each in self._ended if each.ended_ns > at_ns]
