"""Sessions: live ones merged in place, closed ones written once with their counts by day."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, delete, select

from controlplane.contract import vocabulary
from controlplane.contract.records import Segment
from controlplane.store import dialect, rollups, session_row
from controlplane.store.evidence_tables import live_sessions, session_segments, sessions
from controlplane.store.session_row import LiveSession
from controlplane.store.tables import incarnations, workers

_CLOSED_COLUMNS = tuple(
    column.name for column in sessions.c if column.name not in ("week", "is_mixed")
)


def week_of(moment: datetime) -> str:
    """The ISO week of `moment` in UTC, such as 2026-W48."""
    year, week, _ = moment.astimezone(UTC).isocalendar()
    return f"{year}-W{week:02}"


def live(conn: Connection, ids: Iterable[str]) -> Mapping[str, LiveSession]:
    """Those of the sessions that run or have ended lately, by id."""
    rows = conn.execute(select(live_sessions).where(live_sessions.c.id.in_(sorted(set(ids)))))
    return {row.id: session_row.from_row(row) for row in rows}


def closed(conn: Connection, ids: Iterable[str]) -> frozenset[str]:
    """Ids of those of the sessions that are closed, however long ago."""
    return frozenset(conn.scalars(select(sessions.c.id).where(sessions.c.id.in_(sorted(set(ids))))))


def put(
    conn: Connection,
    changed: Sequence[LiveSession],
    *,
    ended: Mapping[str, Sequence[Segment]],
) -> None:
    """Keep the sessions as they stand now, and close those that have just ended.

    Args:
        conn: a connection whose transaction holds the worker.
        changed: each session once.
        ended: segments of those that ended in this transaction, by session id.
    """
    if not changed:
        return
    rows = [session_row.to_row(session) for session in changed]
    # An id is random, so two workers share one only if one of them lies; the first keeps it.
    dialect.upsert(conn, live_sessions, rows, owner="incarnation")
    just_ended = [session for session in changed if session.id in ended]
    if just_ended:
        _close(conn, just_ended, ended=ended)


def close_lost(conn: Connection, *, incarnation: str, now: datetime) -> int:
    """Mark the open sessions of an incarnation as lost, which is a failure. Returns how many."""
    # Ingest holds the worker while it merges, so an end that is being taken in is not lost as well.
    its = select(workers.c.id).join(incarnations).where(incarnations.c.id == incarnation)
    conn.execute(dialect.lock_row(conn, its, of=workers))
    is_open = (live_sessions.c.incarnation == incarnation) & live_sessions.c.outcome.is_(None)
    rows = conn.execute(select(live_sessions).where(is_open))
    lost = [session_row.lost(session_row.from_row(row), now=now) for row in rows]
    put(conn, lost, ended={session.id: () for session in lost})
    return len(lost)


def forget(conn: Connection, *, before: datetime) -> int:
    """Drop from the live ones those that ended before then. Returns how many."""
    is_old = live_sessions.c.ended_at < before
    return conn.execute(delete(live_sessions).where(is_old)).rowcount


def _close(
    conn: Connection, just_ended: Sequence[LiveSession], *, ended: Mapping[str, Sequence[Segment]]
) -> None:
    rows = [_closed_row(session, segments=ended[session.id]) for session in just_ended]
    conn.execute(sessions.insert(), rows)
    segments = [row for session in just_ended for row in _segment_rows(session, ended[session.id])]
    if segments:
        conn.execute(session_segments.insert(), segments)
    rollups.count(
        conn,
        [
            rollups.of_session(session, is_mixed=row["is_mixed"])
            for row, session in zip(rows, just_ended, strict=True)
        ],
    )


def _closed_row(session: LiveSession, *, segments: Sequence[Segment]) -> dict[str, Any]:
    row = {name: getattr(session, name) for name in _CLOSED_COLUMNS}
    digests = {vocabulary.flags_digest(segment.flags) for segment in segments}
    return {**row, "week": week_of(session.started_at), "is_mixed": len(digests) > 1}


def _segment_rows(session: LiveSession, segments: Sequence[Segment]) -> list[dict[str, Any]]:
    return [
        {
            "session_id": session.id,
            "position": position,
            "flags": dict(segment.flags),
            "num_frames": segment.num_frames,
            "streamed_s": segment.streamed_s,
        }
        for position, segment in enumerate(segments)
    ]
