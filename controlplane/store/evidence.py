"""Everything a canary is judged on, read in one transaction."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, select

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Reason
from controlplane.domain.canary import Canary
from controlplane.domain.evidence import (
    Evidence,
    MemoryEvidence,
    SegmentEvidence,
    SessionEvidence,
    TripEvidence,
)
from controlplane.domain.policy import Subject
from controlplane.store import probes, qualifications, qualities, session_row
from controlplane.store.evidence_tables import (
    breaker_trips,
    live_sessions,
    process_windows,
    session_segments,
    sessions,
)
from controlplane.store.session_row import LiveSession
from controlplane.store.tables import canary_workers, fleets, incarnations, workers


def of_canary(conn: Connection, *, canary: Canary, since: datetime) -> Evidence:
    """What was received about the workers of the canary's fleet, hardware and stack.

    A session whose record names the canary carries the arm it names; any other is a control, unless
    it runs something else than the baseline (a pin, another experiment), which makes it neither. On
    a process that ran a variant that failed it is no control either: what that left behind may slow
    it, and would make the canary look good.
    Controls of a stack canary are on the old stack, on workers that it never exposed.

    Args:
        conn: a connection.
        canary: the canary to be judged.
        since: sessions whose first record was received from then on, and trips.
    """
    return Evidence(
        sessions=_sessions(conn, canary, since=since),
        memories=_memories(conn, canary),
        trips=_trips(conn, canary, since=since),
        newest_record_at=_newest_record_at(conn, canary),
        probes=probes.of_canary(conn, canary_id=canary.id),
        qualities=qualities.of_canary(conn, canary_id=canary.id),
    )


def _sessions(conn: Connection, canary: Canary, *, since: datetime) -> tuple[SessionEvidence, ...]:
    is_open = live_sessions.c.outcome.is_(None)
    tainted = qualifications.tainted_incarnations(conn, fleet=canary.fleet, flag=canary.flag)
    seen = [
        one
        for one in (
            *_of_table(conn, canary, live_sessions, where=is_open, since=since),
            *_of_table(conn, canary, sessions, where=None, since=since),
        )
        if one.is_drawn or one.incarnation not in tainted
    ]
    return _with_segments(conn, sorted(seen, key=lambda one: (one.started_at, one.id)), canary)


def _of_table(
    conn: Connection,
    canary: Canary,
    table: Table,
    *,
    where: ColumnElement[bool] | None,
    since: datetime,
) -> Iterable[SessionEvidence]:
    selected = (
        select(table, workers.c.name.label("worker"))
        .join_from(table, workers, table.c.worker_id == workers.c.id)
        .join(fleets, table.c.fleet_id == fleets.c.id)
        .where(_takes_part(canary, table, worker_id=table.c.worker_id), table.c.started_at >= since)
    )
    for row in conn.execute(selected if where is None else selected.where(where)):
        session = session_row.from_row(row)
        if session.canary == canary.id or _is_control(session, canary):
            yield session_row.evidence(session, worker=row.worker, canary_id=canary.id)


def _is_control(session: LiveSession, canary: Canary) -> bool:
    return session.stack == canary.control_stack and all(
        session.flags.get(flag, variant) == variant for flag, variant in canary.compared.items()
    )


def _takes_part(canary: Canary, table: Table, *, worker_id: Column[Any]) -> ColumnElement[bool]:
    """Of the stratum, and for a stack canary of the old stack, too, where it exposed no worker."""
    taking = _in_stratum(canary, table)
    if canary.subject is Subject.FLAG:
        return taking
    exposed = select(canary_workers.c.worker_id).where(canary_workers.c.canary_id == canary.id)
    of_control = _in_stratum(canary, table, stack=canary.control_stack)
    return taking | (of_control & worker_id.not_in(exposed))


def _in_stratum(canary: Canary, table: Table, *, stack: str | None = None) -> ColumnElement[bool]:
    return (
        (fleets.c.name == canary.fleet)
        & (table.c.hardware == canary.hardware)
        & (table.c.stack == (stack or canary.stack))
    )


def _with_segments(
    conn: Connection, seen: list[SessionEvidence], canary: Canary
) -> tuple[SessionEvidence, ...]:
    """Segments belong to those of its own arms: a control that changed variant is no control."""
    rows = conn.execute(
        select(session_segments)
        .join_from(session_segments, sessions, session_segments.c.session_id == sessions.c.id)
        .where(sessions.c.canary == canary.id)
        .order_by(session_segments.c.session_id, session_segments.c.position)
    )
    segments: dict[str, list[SegmentEvidence]] = {}
    for row in rows:
        segments.setdefault(row.session_id, []).append(_segment(row, canary))
    return tuple(
        replace(one, segments=tuple(segments[one.id])) if one.id in segments else one
        for one in seen
    )


def _segment(row: Any, canary: Canary) -> SegmentEvidence:
    fps = vocabulary.session_fps(
        num_frames=row.num_frames, num_first_chunk_frames=0, streamed_s=row.streamed_s
    )
    if canary.flag is not None:
        variant = row.flags.get(canary.flag, "")
    else:
        variant = canary.candidate if _is_on_trial(row.flags, canary) else ""
    return SegmentEvidence(variant=variant, fps=fps, streamed_s=row.streamed_s)


def _is_on_trial(flags: Mapping[str, str], canary: Canary) -> bool:
    """Whether that is what exposed workers are to run."""
    if canary.flag is not None:
        return flags.get(canary.flag) == canary.variant
    # A flag that is not told of is no reason to think that all went well.
    return bool(flags) and all(
        flags.get(f, variant) == variant for f, variant in canary.tested.items()
    )


def _memories(conn: Connection, canary: Canary) -> tuple[MemoryEvidence, ...]:
    rows = conn.execute(
        select(process_windows, workers.c.name.label("worker"))
        # A process that is gone holds no memory, so only the present incarnation is asked.
        .join_from(process_windows, workers, process_windows.c.incarnation == workers.c.incarnation)
        .join(fleets)
        .where(_takes_part(canary, workers, worker_id=workers.c.id))
        .order_by(workers.c.name)
    )
    return tuple(
        MemoryEvidence(
            worker=row.worker,
            incarnation=row.incarnation,
            received_at=row.received_at,
            resident_bytes=row.resident_bytes,
            limit_bytes=row.limit_bytes,
            flag_bytes=sum(row.flag_bytes.get(flag, 0) for flag in canary.tested),
            lengths=dict(row.lengths),
            num_sessions_started=row.num_sessions_started,
        )
        for row in rows
    )


def _trips(conn: Connection, canary: Canary, *, since: datetime) -> tuple[TripEvidence, ...]:
    rows = conn.execute(
        select(breaker_trips, workers.c.name.label("worker"))
        .join_from(breaker_trips, workers, breaker_trips.c.worker_id == workers.c.id)
        .join(incarnations, breaker_trips.c.incarnation == incarnations.c.id)
        .join(fleets, workers.c.fleet_id == fleets.c.id)
        # Where it happened: the worker may have come back on another stack since.
        .where(_in_stratum(canary, incarnations), breaker_trips.c.at >= since)
        .order_by(breaker_trips.c.at, breaker_trips.c.id)
    )
    return tuple(
        TripEvidence(
            id=row.id,
            worker=row.worker,
            reason=Reason(row.reason),
            at=row.at,
            is_on_variant=_is_on_trial(row.flags, canary),
            detail=row.detail,
        )
        for row in rows
    )


def _newest_record_at(conn: Connection, canary: Canary) -> dict[str, datetime]:
    rows = conn.execute(
        select(workers.c.name, workers.c.last_record_at)
        .join_from(workers, fleets)
        .where(
            _takes_part(canary, workers, worker_id=workers.c.id),
            workers.c.last_record_at.is_not(None),
        )
    )
    return {row.name: row.last_record_at for row in rows}
