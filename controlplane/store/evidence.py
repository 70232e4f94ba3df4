"""Everything a canary is judged on, read in one transaction."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, select

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
from controlplane.store import probes, qualifications, qualities, session_row
from controlplane.store.evidence_tables import (
    breaker_trips,
    live_sessions,
    process_windows,
    session_segments,
    sessions,
)
from controlplane.store.tables import fleets, workers


def of_canary(conn: Connection, *, canary: Canary, since: datetime) -> Evidence:
    """What was received about the workers of the canary's fleet, hardware and stack.

    A session whose record names the canary carries the arm it names; any other is a control, unless
    it runs something else than the baseline (a pin, another experiment), which makes it neither. On
    a process that ran a variant that failed it is no control either: what that left behind may slow
    it, and would make the canary look good.

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
        .where(_in_stratum(canary, table), table.c.started_at >= since)
    )
    for row in conn.execute(selected if where is None else selected.where(where)):
        session = session_row.from_row(row)
        is_in = session.canary == canary.id
        if is_in or session.flags.get(canary.flag, canary.baseline) == canary.baseline:
            yield session_row.evidence(session, worker=row.worker, canary_id=canary.id)


def _in_stratum(canary: Canary, table: Table) -> ColumnElement[bool]:
    return (
        (fleets.c.name == canary.fleet)
        & (table.c.hardware == canary.hardware)
        & (table.c.stack == canary.stack)
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
        segments.setdefault(row.session_id, []).append(_segment(row, flag=canary.flag))
    return tuple(
        replace(one, segments=tuple(segments[one.id])) if one.id in segments else one
        for one in seen
    )


def _segment(row: Any, *, flag: str) -> SegmentEvidence:
    fps = vocabulary.session_fps(
        num_frames=row.num_frames, num_first_chunk_frames=0, streamed_s=row.streamed_s
    )
    return SegmentEvidence(variant=row.flags.get(flag, ""), fps=fps, streamed_s=row.streamed_s)


def _memories(conn: Connection, canary: Canary) -> tuple[MemoryEvidence, ...]:
    rows = conn.execute(
        select(process_windows, workers.c.name.label("worker"))
        # A process that is gone holds no memory, so only the present incarnation is asked.
        .join_from(process_windows, workers, process_windows.c.incarnation == workers.c.incarnation)
        .join(fleets)
        .where(_in_stratum(canary, workers))
        .order_by(workers.c.name)
    )
    return tuple(
        MemoryEvidence(
            worker=row.worker,
            incarnation=row.incarnation,
            received_at=row.received_at,
            resident_bytes=row.resident_bytes,
            limit_bytes=row.limit_bytes,
            flag_bytes=row.flag_bytes.get(canary.flag, 0),
            lengths=dict(row.lengths),
            num_sessions_started=row.num_sessions_started,
        )
        for row in rows
    )


def _trips(conn: Connection, canary: Canary, *, since: datetime) -> tuple[TripEvidence, ...]:
    rows = conn.execute(
        select(breaker_trips, workers.c.name.label("worker"))
        .join_from(breaker_trips, workers, breaker_trips.c.worker_id == workers.c.id)
        .join(fleets)
        .where(_in_stratum(canary, workers), breaker_trips.c.at >= since)
        .order_by(breaker_trips.c.at, breaker_trips.c.id)
    )
    return tuple(
        TripEvidence(
            id=row.id,
            worker=row.worker,
            reason=Reason(row.reason),
            at=row.at,
            is_on_variant=row.flags.get(canary.flag) == canary.variant,
            detail=row.detail,
        )
        for row in rows
    )


def _newest_record_at(conn: Connection, canary: Canary) -> dict[str, datetime]:
    rows = conn.execute(
        select(workers.c.name, workers.c.last_record_at)
        .join_from(workers, fleets)
        .where(_in_stratum(canary, workers), workers.c.last_record_at.is_not(None))
    )
    return {row.name: row.last_record_at for row in rows}
