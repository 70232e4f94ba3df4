"""Tells a database that cannot just now from a statement that never could.

A full disk, a lost connection or a lock that is held passes; whoever asked may ask again. The rest
is a fault of ours and stays one.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import OperationalError

from controlplane.domain.errors import UnavailableError

# Primary result codes, https://sqlite.org/rescode.html.
_SQLITE: Final = {
    sqlite3.SQLITE_BUSY: "the database is locked",
    sqlite3.SQLITE_LOCKED: "the database is locked",
    sqlite3.SQLITE_NOMEM: "there is no memory left",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened",
}
# SQLSTATE by class, https://www.postgresql.org/docs/current/errcodes-appendix.html.
_POSTGRESQL: Final = {
    "08": "the database cannot be reached",
    "40": "others change the same rows",
    "53": "the database is out of resources",
    "55": "others hold the same rows",
    "57": "the database is being stopped, or took too long",
}


@contextmanager
def told() -> Iterator[None]:
    """Raise UnavailableError for what passes."""
    try:
        yield
    except OperationalError as error:
        reason = _reason(error.orig)
        if reason is None:
            raise
        raise UnavailableError(f"{reason}: nothing was changed; send it again later") from error


def _reason(error: object) -> str | None:
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None:
        return _SQLITE.get(code & 0xFF)
    if isinstance(error, sqlite3.Error):
        return None
    state = getattr(error, "sqlstate", None)
    # Without a state there was no answer at all.
    return _POSTGRESQL["08"] if state is None else _POSTGRESQL.get(state[:2])
