"""Keys of requests that were done already, so that a repeat gets the first answer."""

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, delete, select, update

from controlplane.domain.errors import ConflictError
from controlplane.store import dialect
from controlplane.store.tables import idempotency_keys


def claim(conn: Connection, *, key: str, request_digest: str, now: datetime) -> Any | None:
    """The answer the request was given before, or None: it is new, and now claimed.

    A second request with the key waits until this transaction ends.

    Raises:
        ConflictError: the key was used for another request.
    """
    row = {"key": key, "request_digest": request_digest, "created_at": now}
    if dialect.insert_new(conn, idempotency_keys, [row]):
        return None
    found = conn.execute(select(idempotency_keys).where(idempotency_keys.c.key == key)).one()
    if found.request_digest != request_digest:
        raise ConflictError(
            f"the idempotency key {key!r} was used for another request: take a new one"
        )
    return found.response


def keep(conn: Connection, *, key: str, response: Any) -> None:
    """Keep the answer to the request that claimed `key`."""
    known = idempotency_keys.c.key == key
    conn.execute(update(idempotency_keys).where(known).values(response=response))


def forget(conn: Connection, *, before: datetime) -> int:
    """Drop keys claimed before then. Returns how many."""
    return conn.execute(
        delete(idempotency_keys).where(idempotency_keys.c.created_at < before)
    ).rowcount
