"""How far a rollback has come on each exposed worker: contained, verified or quarantined.

Contained: no session can start or go on under the variant. Verified: the flag's code keeps no more
memory than it did for the baseline. A worker that never answers is neither until its lease has
lapsed, and is quarantined if it stays silent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from controlplane.domain.canary import Canary
from controlplane.domain.fleet import Worker

# A lease counts on the worker's monotonic clock from the receipt of the answer, so the server gives
# the answer's way there and one poll of the watch on the worker.
LEASE_MARGIN = timedelta(seconds=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """A worker that has run the canary's variant, and how far it is back."""

    worker_id: str
    worker: str  # name
    incarnation: str  # that was exposed
    exposed_at: datetime
    flag_bytes_before: int  # what the flag's code kept there for the baseline
    contained_at: datetime | None = None
    verified_at: datetime | None = None
    quarantined_at: datetime | None = None

    @property
    def is_out(self) -> bool:
        """Whether no viewer can meet the variant there any more."""
        return self.contained_at is not None or self.quarantined_at is not None

    @property
    def is_settled(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self.verified_at is not None or self.quarantined_at is not None


def advanced(
    exposures: Iterable[Exposure],
    *,
    workers: Iterable[Worker],
    canary: Canary,
    variants: Mapping[str, str],
    within: timedelta,
    now: datetime,
) -> tuple[Exposure, ...]:
    """The exposures as they stand on what the workers report; marks are set once, never taken back.

    Args:
        exposures: of the canary.
        workers: as last observed; one that is not among them has not been heard of.
        canary: in a phase of rolling back, since when its workers are wanted off the variant.
        variants: flag -> variant that every one of them has to leave.
        within: time from the start of the phase after which a worker that is not verified is
            quarantined; the time to contain and the time to verify are bounded one after the other.
        now: of this observation.
    """
    by_id = {worker.id: worker for worker in workers}
    return tuple(
        _advance(
            exposure,
            by_id.get(exposure.worker_id),
            canary=canary,
            variants=variants,
            within=within,
            now=now,
        )
        for exposure in exposures
    )


def _advance(
    exposure: Exposure,
    worker: Worker | None,
    *,
    canary: Canary,
    variants: Mapping[str, str],
    within: timedelta,
    now: datetime,
) -> Exposure:
    if exposure.contained_at is None and _is_contained(worker, canary, variants, now=now):
        exposure = replace(exposure, contained_at=now)
    may_verify = exposure.contained_at is not None and exposure.verified_at is None
    if may_verify and worker is not None and _is_verified(exposure, worker, variants):
        return replace(exposure, verified_at=now)
    if not exposure.is_settled and now - canary.phase_since > within:
        return replace(exposure, quarantined_at=now)
    return exposure


def _is_contained(
    worker: Worker | None, canary: Canary, variants: Mapping[str, str], *, now: datetime
) -> bool:
    if worker is not None and _is_back(worker, variants):
        return True
    if worker is not None and worker.is_cordoned and worker.num_open_sessions == 0:
        return True
    # Without a renewal every worker has left the variant by itself, heard of or not.
    return canary.lease_until is not None and now > canary.lease_until + LEASE_MARGIN


def _is_back(worker: Worker, variants: Mapping[str, str]) -> bool:
    """Whether all ranks report the wanted state, and neither has any of the variants.

    A life that began after the exposure is no exception: it may have been told the variant, too.
    """
    return worker.effective_generation >= worker.desired_generation > 0 and all(
        worker.effective_flags.get(flag, variant) != variant
        and worker.desired_flags.get(flag) != variant
        for flag, variant in variants.items()
    )


def _is_verified(exposure: Exposure, worker: Worker, variants: Mapping[str, str]) -> bool:
    if not _is_back(worker, variants):
        return False
    if worker.incarnation != exposure.incarnation and _is_replaced(exposure, worker):
        return True
    is_measured = worker.flag_bytes_at is not None and worker.flag_bytes_at > exposure.exposed_at
    # Bytes that nobody accounts for are not zero. And the baseline may be a fast path with buffers
    # of its own, so zero would ask too much.
    kept = [worker.flag_bytes[flag] for flag in variants if flag in worker.flag_bytes]
    is_accounted = len(kept) == len(variants)
    return is_measured and is_accounted and sum(kept) <= exposure.flag_bytes_before


def _is_replaced(exposure: Exposure, worker: Worker) -> bool:
    """Whether its processes began after it was off the variant, so that none can have met it."""
    contained_at = exposure.contained_at
    return contained_at is not None and worker.incarnation_since >= contained_at
