"""API tokens, by their hash: the token itself is never kept."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, Select, select, update

from controlplane.domain.errors import NotFoundError
from controlplane.store import fleets as fleet_store
from controlplane.store.tables import api_tokens, fleets


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """Who a token speaks for."""

    id: str
    name: str
    role: str  # viewer, operator, admin or worker
    fleet: str | None  # None: every fleet
    worker: str | None  # of the role worker only
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_valid(self, *, now: datetime) -> bool:
        """Whether it still speaks for anybody."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def hash_of(secret: str) -> str:
    """What is kept of a token. Plain SHA-256: a token is random, so there is nothing to guess."""
    return hashlib.sha256(secret.encode()).hexdigest()


def insert(conn: Connection, token: Token, *, secret: str) -> None:
    """Add `token`, which is shown as `secret` this once."""
    fleet_id = None if token.fleet is None else fleet_store.id_of(conn, token.fleet)
    conn.execute(
        api_tokens.insert().values(
            id=token.id,
            name=token.name,
            hash=hash_of(secret),
            role=token.role,
            fleet_id=fleet_id,
            worker=token.worker,
            created_at=token.created_at,
            expires_at=token.expires_at,
            revoked_at=token.revoked_at,
        )
    )


def find(conn: Connection, *, secret: str, now: datetime) -> Token | None:
    """The valid token shown as `secret`, or None.

    The look-up is by hash, so its duration tells nothing about the token.
    """
    row = conn.execute(_selected().where(api_tokens.c.hash == hash_of(secret))).first()
    token = None if row is None else _token(row)
    return token if token and token.is_valid(now=now) else None


def valid(conn: Connection, *, id: str, now: datetime) -> Token | None:  # noqa: A002 - the column's name
    """The token of that id while it speaks for anybody, or None."""
    row = conn.execute(_selected().where(api_tokens.c.id == id)).first()
    token = None if row is None else _token(row)
    return token if token and token.is_valid(now=now) else None


def list_all(conn: Connection) -> tuple[Token, ...]:
    """Every token, newest first; those revoked or expired, too."""
    return tuple(_token(row) for row in conn.execute(_selected().order_by(api_tokens.c.id.desc())))


def revoke(conn: Connection, *, id: str, now: datetime) -> Token:  # noqa: A002 - the column's name
    """End a token at once; one that is revoked already stays as it was.

    Raises:
        NotFoundError: there is none with that id.
    """
    valid = (api_tokens.c.id == id) & api_tokens.c.revoked_at.is_(None)
    conn.execute(update(api_tokens).where(valid).values(revoked_at=now))
    row = conn.execute(_selected().where(api_tokens.c.id == id)).first()
    if row is None:
        raise NotFoundError("token", id)
    return _token(row)


def _selected() -> Select[Any]:
    columns = ("id", "name", "role", "worker", "created_at", "expires_at", "revoked_at")
    return select(
        *(api_tokens.c[name] for name in columns), fleets.c.name.label("fleet")
    ).outerjoin_from(api_tokens, fleets)


def _token(row: Row[Any]) -> Token:
    return Token(**row._asdict())
