"""The migrations make the tables the code expects, and leave what is in them alone."""

from pathlib import Path
from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import CheckConstraint, inspect, select, text

from controlplane import assets
from controlplane.services import ingest
from controlplane.store import canaries as canary_store
from controlplane.store import evidence_tables, tables
from controlplane.store.columns import METADATA
from controlplane.store.transaction import Database
from tests import build
from tests.clock import START


def test_the_migrations_make_what_the_code_expects(database: Database) -> None:
    assert tables.canaries.metadata is evidence_tables.sessions.metadata is METADATA
    with database.write() as conn:
        # Types are compared by what the round trips of tests/store put in and get out.
        context = MigrationContext.configure(conn, opts={"compare_type": False})
        assert compare_metadata(context, METADATA) == []


def test_every_check_of_the_code_is_in_the_database(database: Database) -> None:
    """Alembic does not compare checks, and a word that is unknown must be refused below, too."""
    expected = {
        str(check.name)
        for table in METADATA.tables.values()
        for owner in (table, *table.columns)
        for check in owner.constraints
        if isinstance(check, CheckConstraint)
    }
    with database.read() as conn:
        seen = {
            check["name"]
            for table in METADATA.tables
            for check in inspect(conn).get_check_constraints(table)
        }
    assert expected == seen


def test_there_is_one_newest_migration() -> None:
    """Two heads stop every installation at its next start."""
    assert len(ScriptDirectory(str(assets.migrations())).get_heads()) == 1


def test_migrating_a_filled_database_again_changes_nothing(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        canary = build.put_canary(conn)
    told = [build.received(build.started()), build.received(build.ended())]
    ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    before = _everything(database)
    database.migrate(assets.migrations())
    assert _everything(database) == before
    with database.read() as conn:
        assert canary_store.get(conn, name_or_id=canary.id) == canary


def test_the_scripts_are_found_in_a_checkout() -> None:
    assert (assets.migrations() / "env.py").is_file()
    assert assets.migrations() == Path(__file__).parents[2] / "migrations"


def _everything(database: Database) -> dict[str, Any]:
    with database.read() as conn:
        rows = {
            table.name: [tuple(row) for row in conn.execute(select(table))]
            for table in METADATA.sorted_tables
        }
        version = conn.scalars(text("SELECT version_num FROM alembic_version")).all()
        return {**rows, "alembic_version": version}
