"""What a change does to the workers of a fleet, in words."""

from collections.abc import Mapping
from datetime import datetime

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
    before = {one.id: one for one in worker_store.in_fleet(conn, fleet=fleet)}
    changed = desired_states.refresh(conn, fleet=fleet, now=now)
    after = {one.id: one for one in worker_store.in_fleet(conn, fleet=fleet)}
    told = [
        f"{after[worker].name}: "
        + _difference(before[worker].desired_flags, after[worker].desired_flags)
        for worker in changed
    ]
    if not told:
        return changed, ("no worker is told to run anything else",)
    more = len(told) - MAX_NAMED
    return changed, (*told[:MAX_NAMED], *([f"and {more} workers more"] if more > 0 else []))


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    changes = [
        f"{flag} {before.get(flag, 'unset')} -> {after[flag]}"
        for flag in sorted(after)
        if before.get(flag) != after[flag]
    ]
    return ", ".join(changes) or "the same flags, under a new generation"
