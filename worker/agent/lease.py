"""The countdown during which an unproven variant may run, on the worker's monotonic clock."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Permission that ends at a moment unless renewed; no end means nothing unproven runs."""

    ends_at: float | None = None  # monotonic seconds

    def is_alive(self, *, now: float) -> bool:
        """Whether an unproven variant may still run."""
        return self.ends_at is None or now < self.ends_at

    def remaining_s(self, *, now: float) -> float | None:
        """Seconds left, 0 if it has lapsed, None if there is no end."""
        return None if self.ends_at is None else max(0.0, self.ends_at - now)


def granted(lease_s: float | None, *, now: float) -> Lease:
    """The lease that an answer received at `now` grants."""
    return Lease(ends_at=None if lease_s is None else now + lease_s)
