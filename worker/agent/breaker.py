"""The breaker: after a trip the worker stays at its fallback until a newer generation."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """Which generations may not run here again; a lapse closes one just as a trip does."""

    tripped_generation: int = 0  # 0: never
    lapsed_generation: int = 0

    def is_tripped(self, generation: int) -> bool:
        """Whether `generation` or a later one has tripped here."""
        return self.tripped_generation > 0 and generation <= self.tripped_generation

    def is_lapsed(self, generation: int) -> bool:
        """Whether the lease of `generation` or of a later one has lapsed here."""
        return self.lapsed_generation > 0 and generation <= self.lapsed_generation
