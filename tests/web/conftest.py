"""A filled site for the browser, and a control plane for what needs none."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controlplane.store.transaction import Database
from tests.api.control_plane import ControlPlane, control_plane
from tests.clock import CountingId, FakeClock


@pytest.fixture
def plane(
    database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> Iterator[ControlPlane]:
    """A control plane, once on each kind of database."""
    with control_plane(database, tmp_path / "state", clock=clock, new_id=new_id) as plane:
        yield plane


@pytest.fixture
def sqlite_plane(
    sqlite_database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> Iterator[ControlPlane]:
    """A control plane on SQLite, for what is no matter of databases."""
    with control_plane(sqlite_database, tmp_path / "state", clock=clock, new_id=new_id) as plane:
        yield plane
