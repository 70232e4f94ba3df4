"""Databases without a schema, for tests of one migration after the other."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.store.transaction import Database
from tests import postgres

_EMPTY = "template1"  # PostgreSQL's own


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without a schema, once of each kind."""
    if request.param == "sqlite":
        database = Database.open(f"sqlite:///{tmp_path / 'empty.db'}")
        yield database
        database.close()
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.copy_of(_EMPTY, name=f"steadyframe_empty_{os.getpid()}") as url:
        database = Database.open(url)
        yield database
        database.close()
