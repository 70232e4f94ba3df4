"""Logging in and out of the pages: a token is exchanged for a session that a cookie names."""

from collections.abc import Callable
from datetime import datetime, timedelta

from controlplane.services import tokens
from controlplane.services.tokens import WORKER, Principal
from controlplane.store import tokens as token_store
from controlplane.store import web_sessions as session_store
from controlplane.store.transaction import Connection

# A night on call. Revoking the token ends its sessions at once.
LASTS = timedelta(hours=12)


def begin(
    conn: Connection, *, token: str, new_secret: Callable[[], str], now: datetime
) -> str | None:
    """What the browser shall keep; None if the token is not known, is over, or is a worker's."""
    stored = token_store.find(conn, secret=token, now=now)
    if stored is None or stored.role == WORKER:
        return None
    secret = new_secret()
    session_store.forget(conn, before=now)
    session_store.insert(conn, secret=secret, token_id=stored.id, now=now, expires_at=now + LASTS)
    return secret


def principal(conn: Connection, *, secret: str, now: datetime) -> Principal | None:
    """Who the session stands for; None if it, or its token, is over."""
    stored = session_store.token_of(conn, secret=secret, now=now)
    return None if stored is None else tokens.principal_of(stored)


def end(conn: Connection, *, secret: str) -> None:
    """Log out."""
    session_store.end(conn, secret=secret)
