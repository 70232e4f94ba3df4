"""Which variants have passed a canary, or were attested, on which hardware and stack."""

from dataclasses import asdict
from datetime import datetime

from sqlalchemy import Connection, select, update

from controlplane.domain.desired import Qualification
from controlplane.store import dialect
from controlplane.store.tables import qualifications


def put(
    conn: Connection,
    *,
    qualification: Qualification,
    canary_id: str | None,
    actor: str,
    reason: str,
    now: datetime,
) -> None:
    """Record that it is proven; a record before it, revoked or not, is replaced.

    Args:
        conn: a connection.
        qualification: what is proven, and where.
        canary_id: of the canary that proved it; None: a person attests it.
        actor: who says so.
        reason: in words.
        now: of the record.
    """
    row = {
        **asdict(qualification),
        "canary_id": canary_id,
        "actor": actor,
        "reason": reason,
        "created_at": now,
        "revoked_at": None,
        "revoked_reason": None,
    }
    dialect.upsert(conn, qualifications, row)


def revoke(conn: Connection, *, qualification: Qualification, reason: str, now: datetime) -> bool:
    """Record that it is proven no longer. Returns whether it was."""
    known = qualifications.c.revoked_at.is_(None)
    for name, value in asdict(qualification).items():
        known &= qualifications.c[name] == value
    changed = {"revoked_at": now, "revoked_reason": reason}
    return conn.execute(update(qualifications).where(known).values(changed)).rowcount == 1


def valid(conn: Connection) -> frozenset[Qualification]:
    """All that are proven now."""
    columns = (qualifications.c[name] for name in ("flag", "variant", "hardware", "stack"))
    rows = conn.execute(select(*columns).where(qualifications.c.revoked_at.is_(None)))
    return frozenset(Qualification(**row._asdict()) for row in rows)
