"""Fleets come back as they went in, and a stale writer is turned away."""

from dataclasses import replace

import pytest

from controlplane.domain.errors import ConflictError, NotFoundError, StaleVersionError
from controlplane.domain.fleet import Mode
from controlplane.store import fleets as fleet_store
from controlplane.store.transaction import Database
from tests.domain import build


def test_a_fleet_is_read_as_it_was_written(database: Database) -> None:
    fleet = build.fleet(promoted={"fused_allreduce": "fused_steady"}, stopped_reason="a leak")
    with database.write() as conn:
        fleet_store.insert(conn, fleet)
    with database.read() as conn:
        assert fleet_store.get(conn, fleet.name) == fleet
        assert fleet_store.list_all(conn) == (fleet,)


def test_a_missing_fleet_is_told_with_those_there_are(database: Database) -> None:
    with database.write() as conn:
        fleet_store.insert(conn, build.fleet(name="main"))
        with pytest.raises(NotFoundError, match="there are: main"):
            fleet_store.get(conn, "other")


def test_two_fleets_of_one_name_are_refused(database: Database) -> None:
    with database.write() as conn:
        fleet_store.insert(conn, build.fleet())
        with pytest.raises(ConflictError):
            fleet_store.insert(conn, build.fleet(id="fleet-2"))


def test_a_stale_writer_changes_nothing(database: Database) -> None:
    """Two people who read the same fleet: the second must look again."""
    fleet = build.fleet(version=1)
    with database.write() as conn:
        fleet_store.insert(conn, fleet)
        first = fleet_store.save(conn, replace(fleet, mode=Mode.OBSERVE))
        assert first.version == 2
        with pytest.raises(StaleVersionError):
            fleet_store.save(conn, replace(fleet, stopped_reason="late"))
        assert fleet_store.get(conn, fleet.name) == first
