"""What is to be told to the outside, recorded with the decision it tells of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, select, update

from controlplane.store.tables import outbox


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Something to be told."""

    sequence: int
    topic: str
    body: Any
    created_at: datetime
    num_attempts: int


def append(conn: Connection, *, topic: str, body: Mapping[str, object], now: datetime) -> None:
    """Have `body` told when this transaction has been committed."""
    conn.execute(
        outbox.insert().values(
            topic=topic, body=dict(body), created_at=now, due_at=now, num_attempts=0
        )
    )


def due(conn: Connection, *, now: datetime, limit: int = 100) -> tuple[Letter, ...]:
    """Letters to be sent now, oldest first."""
    columns = ("sequence", "topic", "body", "created_at", "num_attempts")
    rows = conn.execute(
        select(*(outbox.c[name] for name in columns))
        .where(outbox.c.sent_at.is_(None), outbox.c.due_at <= now)
        .order_by(outbox.c.sequence)
        .limit(limit)
    )
    return tuple(Letter(**row._asdict()) for row in rows)


def mark_sent(conn: Connection, *, sequence: int, now: datetime) -> None:
    """It has been told."""
    conn.execute(update(outbox).where(outbox.c.sequence == sequence).values(sent_at=now))


def mark_failed(conn: Connection, *, sequence: int, error: str, due_at: datetime) -> None:
    """It could not be told; the next attempt is at `due_at`."""
    changed = {
        "num_attempts": outbox.c.num_attempts + 1,
        "last_error": error,
        "due_at": due_at,
    }
    conn.execute(update(outbox).where(outbox.c.sequence == sequence).values(changed))
