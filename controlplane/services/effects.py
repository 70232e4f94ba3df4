"""What a change does to the workers of a fleet, in words."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.domain.fleet import Worker
from controlplane.services import desired_states
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection

# As many workers are named; the rest are counted.
MAX_NAMED = 20


def on_workers(
    conn: Connection, *, fleet: str, now: datetime
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Bring the desired states of `fleet` up to date.

    Returns: ids of the workers whose desired state is another now, and a sentence for each.
    """
    before = worker_store.in_fleet(conn, fleet=fleet)
    changed = desired_states.refresh(conn, fleet=fleet, now=now)
    return changed, _told(before, worker_store.in_fleet(conn, fleet=fleet), changed)


def on_worker(
    conn: Connection, worker: Worker, *, now: datetime
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As `on_workers`, for what concerns `worker` alone; it is as it was read before the change."""
    changed = desired_states.refresh_worker(conn, worker_id=worker.id, now=now)
    return changed, _told([worker], [worker_store.by_id(conn, worker.id)], changed)


def _told(
    before: Sequence[Worker], after: Sequence[Worker], changed: Sequence[str]
) -> tuple[str, ...]:
    earlier = {worker.id: worker.desired_flags for worker in before}
    told = [
        f"{worker.name}: {_difference(earlier[worker.id], worker.desired_flags)}"
        for worker in after
        if worker.id in changed
    ]
    if not told:
        return ("no worker is told to run anything else",)
    more = len(told) - MAX_NAMED
    return (*told[:MAX_NAMED], *([f"and {more} workers more"] if more > 0 else []))


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changes = [
        f"{flag} {before.get(flag, 'unset')} -> {after[flag]}"
        for flag in sorted(after)
        if before.get(flag) != after[flag]
    ]
    return ", ".join(changes) or "the same flags, under a new generation"
