"""Sessions of browsers, by the hash of their cookie; each stands for one API token."""

from datetime import datetime

from sqlalchemy import Connection, delete, select

from controlplane.store import tokens as token_store
from controlplane.store.tables import web_sessions
from controlplane.store.tokens import Token


def insert(
    conn: Connection, *, secret: str, token_id: str, now: datetime, expires_at: datetime
) -> None:
    """Begin a session that the browser knows as `secret`."""
    conn.execute(
        web_sessions.insert().values(
            hash=token_store.hash_of(secret),
            token_id=token_id,
            created_at=now,
            expires_at=expires_at,
        )
    )


def token_of(conn: Connection, *, secret: str, now: datetime) -> Token | None:
    """The valid token that the session stands for, or None if either is over."""
    known = (web_sessions.c.hash == token_store.hash_of(secret)) & (web_sessions.c.expires_at > now)
    token_id = conn.scalar(select(web_sessions.c.token_id).where(known))
    return None if token_id is None else token_store.valid(conn, id=token_id, now=now)


def end(conn: Connection, *, secret: str) -> None:
    """End the session; one that is over already is no error."""
    known = web_sessions.c.hash == token_store.hash_of(secret)
    conn.execute(delete(web_sessions).where(known))


def forget(conn: Connection, *, before: datetime) -> int:
    """Drop sessions that expired before then. Returns how many."""
    return conn.execute(delete(web_sessions).where(web_sessions.c.expires_at < before)).rowcount
