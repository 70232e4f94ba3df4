"""Scenarios play on SQLite in `make test` and on both databases in `make test-all`."""

from collections.abc import Iterator

import pytest

from controlplane.store.transaction import Database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty migrated database: what a scenario finds is rarely a matter of which."""
    url = request.getfixturevalue(f"{request.param}_url")
    database = Database.open(url)
    yield database
    database.close()
