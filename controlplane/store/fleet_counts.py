"""Counts of everything by fleet, for whoever watches from outside: one snapshot, whole numbers.

Counters are of rows that are only ever added, so they survive a restart and are the same whichever
process reads them. Every label is one of a closed set, or a name that is cut to a bound here.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import Connection, func, select, text

from controlplane.contract.vocabulary import Outcome
from controlplane.domain.canary import Event, Phase
from controlplane.store import dialect, worker_paths
from controlplane.store.evidence_tables import breaker_trips, live_sessions, session_days
from controlplane.store.tables import (
    canaries,
    decisions,
    fleets,
    flips,
    incarnations,
    leader,
    transitions,
    workers,
)
from controlplane.store.worker_paths import Placed

# Operators make fleets, but workers name their hardware: without a bound a faulty one could fill
# the memory of whoever keeps the series. The oldest keep their names, so that no later one moves a
# counter from one series to another.
MAX_FLEETS: Final = 100
MAX_HARDWARE: Final = 20
OTHER: Final = "_other"  # no name of the contract begins with `_`
TRAFFIC: Final = {False: "live", True: "synthetic"}
ROLLBACKS: Final = (
    Event.GATE_FAILED,
    Event.HARD_STOPPED,
    Event.ABORT_REQUESTED,
    Event.CONTROL_LOST,
    Event.WITHDRAWN,
)

Counts = Mapping[tuple[str, ...], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCounts:
    """What is stored, counted; the keys of each are its labels in the order that is named."""

    fleets: tuple[str, ...]
    strata: tuple[tuple[str, str], ...]  # fleet and hardware that there are
    stopped: Counts  # fleet -> 1: the line is stopped
    enforcing: Counts  # fleet -> 1
    states: Counts  # fleet, hardware, state
    paths: Counts  # fleet, hardware, path
    canaries: Counts  # fleet, phase
    open_sessions: Counts  # fleet
    ended: Counts  # fleet, outcome, traffic
    rated: Counts  # fleet, hardware, traffic; likewise the next two
    slow: Counts
    very_slow: Counts
    records: Counts  # fleet, hardware
    missing: Counts  # fleet, hardware
    decisions: Counts  # fleet, verdict
    rollbacks: Counts  # fleet, event
    flips: Counts  # fleet, layer
    trips: Counts  # fleet, reason
    newest_record_at: Mapping[str, datetime]  # by fleet; absent: none yet
    contained_after: Mapping[str, Sequence[timedelta]]  # by fleet, from the rollback on
    verified_after: Mapping[str, Sequence[timedelta]]
    leader_until: datetime | None
    database_bytes: int


@dataclass(frozen=True, slots=True)
class _Labels:
    """Names that are kept; whatever is beside them is `OTHER`."""

    fleets: Mapping[str, str]  # id -> name
    hardware: frozenset[str]

    def fleet(self, fleet_id: str) -> str:
        return self.fleets.get(fleet_id, OTHER)

    def profile(self, name: str) -> str:
        return name if name in self.hardware else OTHER


@dataclass(slots=True)
class _Sessions:
    ended: Counter[tuple[str, ...]] = field(default_factory=Counter)
    rated: Counter[tuple[str, ...]] = field(default_factory=Counter)
    slow: Counter[tuple[str, ...]] = field(default_factory=Counter)
    very_slow: Counter[tuple[str, ...]] = field(default_factory=Counter)


def read(conn: Connection, *, now: datetime) -> FleetCounts:
    """Everything, as one snapshot of the database has it."""
    labels = _labels(conn)
    sessions = _sessions(conn, labels)
    seen = worker_paths.placed(conn, now=now)
    states = _placed(labels, seen, lambda worker: worker.state)
    paths = _placed(labels, seen, lambda worker: worker.path)
    records, missing = _records(conn, labels)
    return FleetCounts(
        fleets=tuple(sorted({*labels.fleets.values(), *(key[0] for key in states)})),
        strata=tuple(sorted({(key[0], key[1]) for key in (*states, *records, *sessions.rated)})),
        stopped=_fleets_where(conn, labels, fleets.c.stopped_reason.is_not(None)),
        enforcing=_fleets_where(conn, labels, fleets.c.mode == "enforce"),
        states=states,
        paths=paths,
        canaries=_grouped(conn, labels, canaries.c.fleet_id, canaries.c.phase),
        open_sessions=_open_sessions(conn, labels),
        ended=sessions.ended,
        rated=sessions.rated,
        slow=sessions.slow,
        very_slow=sessions.very_slow,
        records=records,
        missing=missing,
        decisions=_decisions(conn, labels),
        rollbacks=_rollbacks(conn, labels),
        flips=_of_workers(conn, labels, flips.c.layer, flips),
        trips=_of_workers(conn, labels, breaker_trips.c.reason, breaker_trips),
        newest_record_at=_newest_record_at(conn, labels),
        contained_after=_after_rollback(conn, labels, Event.CONTAINMENT_SEEN),
        verified_after=_after_rollback(conn, labels, Event.VERIFICATION_SEEN),
        leader_until=conn.scalars(select(func.max(leader.c.expires_at))).one(),
        database_bytes=_database_bytes(conn),
    )


def _labels(conn: Connection) -> _Labels:
    # Ids rise with time, so these are the oldest fleets.
    oldest = select(fleets.c.id, fleets.c.name).order_by(fleets.c.id).limit(MAX_FLEETS)
    began = func.min(incarnations.c.started_at)
    profiles = (
        select(incarnations.c.hardware)
        .group_by(incarnations.c.hardware)
        .order_by(began, incarnations.c.hardware)
        .limit(MAX_HARDWARE)
    )
    return _Labels(
        fleets={row.id: row.name for row in conn.execute(oldest)},
        hardware=frozenset(conn.scalars(profiles)),
    )


def _placed(labels: _Labels, seen: Iterable[Placed], word: Callable[[Placed], str]) -> Counts:
    keys = ((labels.fleet(one.fleet_id), labels.profile(one.hardware), word(one)) for one in seen)
    return _summed((key, 1) for key in keys)


def _fleets_where(conn: Connection, labels: _Labels, where: Any) -> Counts:
    return Counter((labels.fleet(one),) for one in conn.scalars(select(fleets.c.id).where(where)))


def _sessions(conn: Connection, labels: _Labels) -> _Sessions:
    days = session_days.c
    sums = ("num_sessions", "num_failed", "num_viewer_limited")
    rates = ("num_rated", "num_slow", "num_very_slow")
    group = (days.fleet_id, days.hardware, days.is_synthetic)
    found = conn.execute(
        select(*group, *(func.sum(days[name]).label(name) for name in (*sums, *rates)))
        .where(~days.is_imported)  # the past is no traffic of today
        .group_by(*group)
    )
    counted = _Sessions()
    for row in found:
        fleet, traffic = labels.fleet(row.fleet_id), TRAFFIC[row.is_synthetic]
        num_failed, num_limited = int(row.num_failed), int(row.num_viewer_limited)
        num_completed = int(row.num_sessions) - num_failed - num_limited
        counted.ended[fleet, Outcome.COMPLETED, traffic] += num_completed
        counted.ended[fleet, Outcome.FAILED, traffic] += num_failed
        counted.ended[fleet, Outcome.VIEWER_LIMITED, traffic] += num_limited
        key = (fleet, labels.profile(row.hardware), traffic)
        counted.rated[key] += int(row.num_rated)
        counted.slow[key] += int(row.num_slow)
        counted.very_slow[key] += int(row.num_very_slow)
    return counted


def _records(conn: Connection, labels: _Labels) -> tuple[Counts, Counts]:
    group = (workers.c.fleet_id, incarnations.c.hardware)
    found = conn.execute(
        select(
            *group,
            func.sum(incarnations.c.num_records).label("num_records"),
            func.sum(incarnations.c.highest_seq - incarnations.c.num_records).label("num_missing"),
        )
        .join_from(incarnations, workers, incarnations.c.worker_id == workers.c.id)
        .group_by(*group)
    )
    records: Counter[tuple[str, ...]] = Counter()
    missing: Counter[tuple[str, ...]] = Counter()
    for row in found:
        key = (labels.fleet(row.fleet_id), labels.profile(row.hardware))
        records[key] += int(row.num_records)
        missing[key] += int(row.num_missing)
    return records, missing


def _open_sessions(conn: Connection, labels: _Labels) -> Counts:
    found = (
        select(live_sessions.c.fleet_id, func.count().label("num"))
        .where(live_sessions.c.outcome.is_(None))
        .group_by(live_sessions.c.fleet_id)
    )
    return _summed(((labels.fleet(row.fleet_id),), row.num) for row in conn.execute(found))


def _grouped(conn: Connection, labels: _Labels, fleet_id: Any, word: Any) -> Counts:
    found = select(fleet_id, word, func.count().label("num")).group_by(fleet_id, word)
    return _summed(((labels.fleet(row[0]), row[1]), row.num) for row in conn.execute(found))


def _decisions(conn: Connection, labels: _Labels) -> Counts:
    group = (canaries.c.fleet_id, decisions.c.verdict)
    found = select(*group, func.count().label("num")).join_from(decisions, canaries)
    rows = conn.execute(found.group_by(*group))
    return _summed(((labels.fleet(row[0]), row[1]), row.num) for row in rows)


def _rollbacks(conn: Connection, labels: _Labels) -> Counts:
    group = (canaries.c.fleet_id, transitions.c.event)
    found = (
        select(*group, func.count().label("num"))
        .join_from(transitions, canaries)
        .where(_begins_rollback(transitions))
        .group_by(*group)
    )
    return _summed(((labels.fleet(row[0]), row[1]), row.num) for row in conn.execute(found))


def _of_workers(conn: Connection, labels: _Labels, word: Any, table: Any) -> Counts:
    group = (workers.c.fleet_id, word)
    found = (
        select(*group, func.count().label("num"))
        .join_from(table, workers, table.c.worker_id == workers.c.id)
        .group_by(*group)
    )
    return _summed(((labels.fleet(row[0]), row[1]), row.num) for row in conn.execute(found))


def _newest_record_at(conn: Connection, labels: _Labels) -> Mapping[str, datetime]:
    found = conn.execute(
        select(workers.c.fleet_id, func.max(workers.c.last_record_at).label("at"))
        .where(workers.c.last_record_at.is_not(None))
        .group_by(workers.c.fleet_id)
    )
    newest: dict[str, datetime] = {}
    for row in found:
        fleet = labels.fleet(row.fleet_id)
        newest[fleet] = max(newest.get(fleet, row.at), row.at)
    return newest


def _after_rollback(
    conn: Connection, labels: _Labels, event: Event
) -> Mapping[str, Sequence[timedelta]]:
    began, seen = transitions.alias("began"), transitions.alias("seen")
    found = conn.execute(
        select(canaries.c.fleet_id, began.c.at.label("from_at"), seen.c.at.label("to_at"))
        .join_from(began, seen, began.c.canary_id == seen.c.canary_id)
        .join(canaries, canaries.c.id == began.c.canary_id)
        .where(_begins_rollback(began), seen.c.event == event.value)
    )
    durations: dict[str, list[timedelta]] = {}
    for row in found:
        lasted = max(timedelta(0), row.to_at - row.from_at)  # a clock may have been set back
        durations.setdefault(labels.fleet(row.fleet_id), []).append(lasted)
    return durations


def _begins_rollback(table: Any) -> Any:
    rolling = Phase.ROLLING_BACK.value
    return (table.c.phase_to == rolling) & (table.c.phase_from != rolling)


def _database_bytes(conn: Connection) -> int:
    if conn.dialect.name == dialect.POSTGRESQL:
        return int(conn.scalar(text("SELECT pg_database_size(current_database())")) or 0)
    pages = conn.scalar(text("PRAGMA page_count")) or 0
    return int(pages) * int(conn.scalar(text("PRAGMA page_size")) or 0)


def _summed(rows: Iterable[tuple[tuple[str, ...], int]]) -> Counts:
    total: Counter[tuple[str, ...]] = Counter()
    for key, num in rows:
        total[key] += int(num)
    return total
