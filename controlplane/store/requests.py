"""What people ask of canaries; the next tick answers."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select, update

from controlplane.domain.errors import ConflictError
from controlplane.domain.observation import Answer, Request, RequestKind
from controlplane.store.tables import canary_requests


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredRequest:
    """A request with its answer, if it has one."""

    request: Request
    created_at: datetime
    answer: Answer | None
    detail: str
    answered_at: datetime | None


def insert(  # noqa: PLR0913 - the columns of the row
    conn: Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    canary_id: str,
    kind: RequestKind,
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    """Ask `kind` of the canary."""
    conn.execute(
        canary_requests.insert().values(
            id=id,
            canary_id=canary_id,
            kind=RequestKind(kind).value,
            actor=actor,
            reason=reason,
            created_at=now,
            detail="",
        )
    )


def pending(conn: Connection, *, canary_id: str) -> tuple[Request, ...]:
    """Requests that nobody has answered, oldest first."""
    return tuple(one.request for one in of_canary(conn, canary_id=canary_id) if one.answer is None)


def of_canary(conn: Connection, *, canary_id: str) -> tuple[AnsweredRequest, ...]:
    """Every request of the canary, oldest first."""
    rows = conn.execute(
        select(canary_requests)
        .where(canary_requests.c.canary_id == canary_id)
        .order_by(canary_requests.c.created_at, canary_requests.c.id)
    )
    return tuple(
        AnsweredRequest(
            request=Request(
                id=row.id, kind=RequestKind(row.kind), actor=row.actor, reason=row.reason
            ),
            created_at=row.created_at,
            answer=Answer(row.answer) if row.answer else None,
            detail=row.detail,
            answered_at=row.answered_at,
        )
        for row in rows
    )


def answer(
    conn: Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    answer: Answer,
    detail: str,
    now: datetime,
) -> None:
    """Answer one request.

    Raises:
        ConflictError: it has an answer already.
    """
    is_pending = (canary_requests.c.id == id) & canary_requests.c.answered_at.is_(None)
    changed = {"answer": Answer(answer).value, "detail": detail, "answered_at": now}
    if conn.execute(update(canary_requests).where(is_pending).values(changed)).rowcount != 1:
        raise ConflictError(f"the request {id} has been answered already")
