"""Where each worker stands and what it runs, in one word each, without reading workers one by one.

The words are a closed set and every worker has exactly one of each, so their counts add up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection, Row, func, select

from controlplane.contract import vocabulary
from controlplane.domain.canary import TERMINAL
from controlplane.domain.flag import Flag
from controlplane.domain.fleet import REACHABLE_WITHIN
from controlplane.store import flags as flag_store
from controlplane.store.evidence_tables import breaker_trips
from controlplane.store.tables import canaries, canary_workers, desired_states, fleets, workers


class State(StrEnum):
    """Where a worker stands; the first that holds."""

    QUARANTINED = "quarantined"
    CORDONED = "cordoned"
    SILENT = "silent"  # not heard of for half a minute: what follows would be old news
    BREAK_GLASS = "break_glass"
    TRIPPED = "tripped"  # its breaker is open
    LEASE_LAPSED = "lease_lapsed"
    SETTLING = "settling"  # told to run other flags than its ranks reported
    SERVING = "serving"


class Path(StrEnum):
    """What the ranks of a worker last reported that they run; the first that holds of any flag."""

    CANARY = "canary"  # the variant of a canary that it is exposed to
    OTHER = "other"  # a pin, or what an observed fleet was found with
    PROMOTED = "promoted"
    FALLBACK = "fallback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One worker, in two words."""

    fleet_id: str
    hardware: str
    state: State
    path: Path


def placed(conn: Connection, *, now: datetime) -> tuple[Placed, ...]:
    """Every worker, by no particular order."""
    catalogue = {flag.name: flag for flag in flag_store.catalogue(conn)}
    tripped = frozenset(
        conn.scalars(select(breaker_trips.c.worker_id).where(breaker_trips.c.closed_at.is_(None)))
    )
    tested = _tested(conn)
    return tuple(
        Placed(
            fleet_id=row.fleet_id,
            hardware=row.hardware,
            state=_state(row, is_tripped=row.id in tripped, now=now),
            path=_path(row, catalogue, tested=tested.get(row.id, {})),
        )
        for row in _rows(conn)
    )


def _rows(conn: Connection) -> Any:
    names = ("id", "fleet_id", "hardware", "last_seen_at", "effective_generation")
    marks = ("is_quarantined", "is_cordoned", "is_break_glass", "is_lease_lapsed")
    return conn.execute(
        select(
            *(workers.c[name] for name in (*names, *marks)),
            workers.c.effective_flags,
            fleets.c.promoted,
            func.coalesce(desired_states.c.generation, 0).label("desired_generation"),
            desired_states.c.flags.label("desired_flags"),
        )
        .join_from(workers, fleets)
        .outerjoin(desired_states)
    )


def _tested(conn: Connection) -> Mapping[str, Mapping[str, str]]:
    """By worker: the variant under test of each flag."""
    found = conn.execute(
        select(canary_workers.c.worker_id, canaries.c.flag, canaries.c.variant, canaries.c.variants)
        .join_from(canary_workers, canaries)
        .where(canaries.c.phase.not_in([phase.value for phase in TERMINAL]))
    )
    tested: dict[str, dict[str, str]] = {}
    for row in found:
        found_there = row.variants or {row.flag: row.variant}
        tested.setdefault(row.worker_id, {}).update(found_there)
    return tested


def _state(row: Row[Any], *, is_tripped: bool, now: datetime) -> State:
    is_settled = row.effective_generation >= row.desired_generation and vocabulary.runs(
        row.effective_flags, row.desired_flags or {}
    )
    holds = {
        State.QUARANTINED: row.is_quarantined,
        State.CORDONED: row.is_cordoned,
        State.SILENT: now - row.last_seen_at > REACHABLE_WITHIN,
        State.BREAK_GLASS: row.is_break_glass,
        State.TRIPPED: is_tripped,
        State.LEASE_LAPSED: row.is_lease_lapsed,
        State.SETTLING: not is_settled,
        State.SERVING: True,
    }
    return next(state for state in State if holds[state])


def _path(row: Row[Any], catalogue: Mapping[str, Flag], *, tested: Mapping[str, str]) -> Path:
    paths = {
        _path_of(flag, variant, row, catalogue, tested=tested)
        for flag, variant in row.effective_flags.items()
        if flag in catalogue or flag in tested
    }
    return next((path for path in Path if path in paths), Path.FALLBACK)


def _path_of(
    flag: str,
    variant: str,
    row: Row[Any],
    catalogue: Mapping[str, Flag],
    *,
    tested: Mapping[str, str],
) -> Path:
    known = catalogue.get(flag)
    if known is not None and variant == known.fallback_on(row.hardware):
        return Path.FALLBACK
    if tested.get(flag) == variant:
        return Path.CANARY
    return Path.PROMOTED if row.promoted.get(flag) == variant else Path.OTHER
