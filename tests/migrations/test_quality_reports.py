"""Migration 0008 adds a table, and leaves canaries that run as they are."""

from typing import Any

from sqlalchemy import Connection, text

from controlplane import assets
from controlplane.store import canaries as canary_store
from controlplane.store import qualities as quality_store
from controlplane.store.transaction import Database
from tests.migrations.steps import migrate, put_canary, put_fleet
from tests.store.test_qualities import report


def test_a_canary_that_runs_is_kept_and_can_be_reported_on(empty: Database) -> None:
    with empty.write() as conn:
        migrate(conn, to="0005")
        put_fleet(conn)
        put_canary(conn, id="canary-1")
        migrate(conn, to="0007")
        before = _rows(conn)
        migrate(conn, to="0008")
        assert _rows(conn) == before
    empty.migrate(assets.migrations())
    with empty.write() as conn:
        assert quality_store.of_canary(conn, canary_id="canary-1") == ()
        assert quality_store.put(conn, report())
        assert [one.value for one in quality_store.of_canary(conn, canary_id="canary-1")] == [93.25]
        canary = canary_store.get(conn, name_or_id="canary-1")
    assert canary.phase == "progressing"


def _rows(conn: Connection) -> list[Any]:
    return [
        conn.execute(text(f"SELECT * FROM {table}")).all()  # noqa: S608 - ours
        for table in ("fleets", "policies", "canaries")
    ]
