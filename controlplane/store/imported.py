"""Imported sessions: kept apart from measured ones, counted with them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection

from controlplane.domain.evidence import SessionEvidence
from controlplane.domain.imported import ImportedSession
from controlplane.store import dialect, rollups
from controlplane.store import sessions as session_store
from controlplane.store.evidence_tables import imported_sessions
from controlplane.store.rollups import Ended
from controlplane.store.tables import stacks

# Bounds a statement: none takes long, and their number costs little.
_BATCH: Final = 1000


def insert_new(
    conn: Connection, *, fleet_id: str, sessions: Sequence[ImportedSession], now: datetime
) -> int:
    """Keep and count those that are not known, imported or measured. Returns how many."""
    _keep_stacks(conn, sessions, now=now)
    new: list[ImportedSession] = []
    for batch in _batches(sessions):
        measured = session_store.closed(conn, (session.id for session in batch))
        rows = [
            _row(session, fleet_id=fleet_id, now=now)
            for session in batch
            if session.id not in measured
        ]
        inserted = {key[1] for key in dialect.insert_new(conn, imported_sessions, rows)}
        new += [session for session in batch if session.id in inserted]
    rollups.count(conn, (_ended(session, fleet_id=fleet_id) for session in new))
    return len(new)


def _batches(sessions: Sequence[ImportedSession]) -> Iterator[Sequence[ImportedSession]]:
    for start in range(0, len(sessions), _BATCH):
        yield sessions[start : start + _BATCH]


def _keep_stacks(conn: Connection, sessions: Sequence[ImportedSession], *, now: datetime) -> None:
    parts = {one.stack: dict(one.stack_parts) for one in sessions if one.stack_parts is not None}
    rows = [
        {"digest": digest, "parts": parts[digest], "first_seen_at": now} for digest in sorted(parts)
    ]
    dialect.insert_new(conn, stacks, rows)


def _row(session: ImportedSession, *, fleet_id: str, now: datetime) -> dict[str, Any]:
    return {
        "fleet_id": fleet_id,
        "id": session.id,
        "worker": session.worker,
        "hardware": session.hardware,
        "stack": session.stack,
        "flags": dict(session.flags),
        "started_at": session.started_at,
        "imported_at": now,
        "streamed_s": session.streamed_s,
        "num_frames": session.num_frames,
        "fps": session.fps,
        "outcome": session.outcome.value,
        "reason": session.reason.value if session.reason else None,
        "first_forward_length": session.first_forward_length,
        "is_mixed": session.is_mixed,
        "is_synthetic": session.is_synthetic,
    }


def _ended(session: ImportedSession, *, fleet_id: str) -> Ended:
    return Ended(
        fleet_id=fleet_id,
        hardware=session.hardware,
        stack=session.stack,
        flags=session.flags,
        is_mixed=session.is_mixed,
        is_imported=True,
        evidence=SessionEvidence(
            id=session.id,
            worker=session.worker,
            incarnation="",
            arm="",
            started_at=session.started_at,
            updated_at=session.started_at,
            outcome=session.outcome,
            reason=session.reason,
            fps=session.fps,
            streamed_s=session.streamed_s,
            first_forward_length=session.first_forward_length,
            is_synthetic=session.is_synthetic,
            is_non_compliant=False,
        ),
    )
