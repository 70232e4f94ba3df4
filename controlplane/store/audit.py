"""Who did what: a chain of hashes, so that a row changed, dropped or put in later shows."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, select

from controlplane.domain.errors import DomainError
from controlplane.store import dialect
from controlplane.store.columns import to_json
from controlplane.store.tables import audit

_GENESIS: Final = "0" * 64
_PAGE: Final = 1000
_SAID: Final = ("actor", "action", "target", "reason", "detail")


class BrokenChainError(DomainError):
    """The audit trail has been changed after it was written."""

    def __init__(self, sequence: int, why: str) -> None:
        super().__init__(f"audit row {sequence}: {why}; compare with a backup")
        self.sequence = sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One act."""

    sequence: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str
    detail: Any
    previous_hash: str
    hash: str


def append(  # noqa: PLR0913 - the columns of the row
    conn: Connection,
    *,
    actor: str,
    action: str,
    target: str,
    reason: str,
    detail: Mapping[str, object],
    now: datetime,
) -> None:
    """Record an act, chained to the one before; others wait until this transaction ends."""
    dialect.serialise(conn, "audit")
    newest = select(audit.c.sequence, audit.c.hash).order_by(audit.c.sequence.desc()).limit(1)
    last = conn.execute(newest).first()
    # Bounded here and not by the column type, since the hash is of what is kept.
    said = {
        "actor": _kept(actor, 200),
        "action": _kept(action, 63),
        "target": _kept(target, 200),
        "reason": _kept(reason, 1000),
        "detail": to_json(detail),
    }
    sequence = last.sequence + 1 if last else 1
    previous = last.hash if last else _GENESIS
    digest = _hash(previous, sequence, now, said)
    conn.execute(
        audit.insert().values(
            sequence=sequence, previous_hash=previous, hash=digest, at=now, **said
        )
    )


def page(conn: Connection, *, after: int | None = None, limit: int = 100) -> tuple[AuditRow, ...]:
    """Acts, newest first, below the sequence `after`."""
    selected = select(audit).order_by(audit.c.sequence.desc()).limit(limit)
    if after is not None:
        selected = selected.where(audit.c.sequence < after)
    return tuple(_audit_row(row) for row in conn.execute(selected))


def digest_of(conn: Connection, *, target: str, decision: str) -> str | None:
    """The digest that was written down when `decision` on the canary `target` was made, if any."""
    selected = select(audit.c.detail).where(audit.c.target == target).order_by(audit.c.sequence)
    for written in conn.scalars(selected):
        detail = json.loads(written)
        if detail.get("decision") == decision:
            found = detail.get("digest")
            return found if isinstance(found, str) else None
    return None


def verify(conn: Connection) -> int:
    """How many rows the chain has, all of them as they were written.

    A chain cut off at its end is sound in itself: keep the newest hash elsewhere.

    Raises:
        BrokenChainError: a row was changed, removed or put in.
    """
    sequence, previous = 0, _GENESIS
    # Ends with the first empty page; each page moves `sequence` on.
    while rows := conn.execute(
        select(audit).where(audit.c.sequence > sequence).order_by(audit.c.sequence).limit(_PAGE)
    ).all():
        for row in rows:
            _check(row, sequence=sequence + 1, previous=previous)
            sequence, previous = row.sequence, row.hash
    return sequence


def _check(row: Row[Any], *, sequence: int, previous: str) -> None:
    if row.sequence != sequence:
        raise BrokenChainError(sequence, "is missing")
    said = {name: getattr(row, name) for name in _SAID}
    if row.previous_hash != previous or row.hash != _hash(previous, sequence, row.at, said):
        raise BrokenChainError(sequence, "is not what was written")


def _hash(previous: str, sequence: int, at: datetime, said: Mapping[str, str]) -> str:
    moment = at.astimezone(UTC).isoformat()
    written = to_json({**said, "previous": previous, "sequence": sequence, "at": moment})
    return hashlib.sha256(written.encode()).hexdigest()


def _kept(text: str, bound: int) -> str:
    return text.replace("\x00", "\ufffd")[:bound]


def _audit_row(row: Row[Any]) -> AuditRow:
    return AuditRow(**{**row._asdict(), "detail": json.loads(row.detail)})
