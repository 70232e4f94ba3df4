"""Policies, by the digest of their canonical document; `domain/policy_document` reads it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, select

from controlplane.domain.errors import NotFoundError
from controlplane.domain.policy import Policy
from controlplane.store import dialect
from controlplane.store.tables import policies


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPolicy:
    """A policy as it is kept: its document says all else."""

    digest: str
    name: str
    flag: str | None  # None: for canaries of a stack
    summary: str
    document: str  # canonical JSON
    created_at: datetime


def put(conn: Connection, policy: Policy, *, now: datetime) -> bool:
    """Keep `policy`; one with the same digest is the same and stays. Returns whether it is new."""
    row = {
        "digest": policy.digest,
        "name": policy.name,
        "flag": policy.flag,
        "summary": policy.summary,
        "document": policy.document,
        "created_at": now,
    }
    return bool(dialect.insert_new(conn, policies, [row]))


def get(conn: Connection, *, digest: str) -> StoredPolicy:
    """The policy with that digest. Raises: NotFoundError."""
    row = conn.execute(select(policies).where(policies.c.digest == digest)).first()
    if row is None:
        raise NotFoundError("policy", digest)
    return _stored(row)


def latest(conn: Connection, *, name: str) -> StoredPolicy:
    """The newest policy named `name`.

    Raises:
        NotFoundError: there is none; tells which there are.
    """
    newest = policies.c.created_at.desc(), policies.c.digest
    row = conn.execute(select(policies).where(policies.c.name == name).order_by(*newest)).first()
    if row is None:
        known = conn.scalars(select(policies.c.name).distinct().order_by(policies.c.name).limit(20))
        raise NotFoundError("policy", name, known=known)
    return _stored(row)


def list_latest(conn: Connection) -> tuple[StoredPolicy, ...]:
    """The newest policy of each name, by name."""
    rows = conn.execute(
        select(policies).order_by(policies.c.name, policies.c.created_at.desc(), policies.c.digest)
    )
    by_name: dict[str, StoredPolicy] = {}
    for row in rows:
        by_name.setdefault(row.name, _stored(row))
    return tuple(by_name.values())


def _stored(row: Row[Any]) -> StoredPolicy:
    return StoredPolicy(**row._asdict())
