"""Transactions keep all or nothing, and one SQLite file has one controller."""

import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError

from controlplane import assets
from controlplane.domain.errors import ConflictError, InvalidValueError
from controlplane.store import fleets as fleet_store
from controlplane.store.tables import fleets
from controlplane.store.transaction import Connection, Database
from tests.domain import build


def test_an_exception_undoes_everything(database: Database) -> None:
    with pytest.raises(ConflictError), database.write() as conn:
        _insert_twice(conn)
    with database.read() as conn:
        assert fleet_store.list_all(conn) == ()


def test_a_reading_transaction_refuses_to_write(database: Database) -> None:
    with pytest.raises(DBAPIError), database.read() as conn:
        conn.execute(delete(fleets))


def test_a_connection_that_has_read_can_write_afterwards(database: Database) -> None:
    """Connections are pooled: what makes one read-only must not stick to it."""
    for _ in range(3):
        with database.read() as conn:
            fleet_store.list_all(conn)
    with database.write() as conn:
        fleet_store.insert(conn, build.fleet())


def test_a_reader_sees_one_snapshot(database: Database) -> None:
    """An observation is read in several statements and must not straddle a decision."""
    with database.read() as conn:
        assert fleet_store.list_all(conn) == ()
        with database.write() as other:
            fleet_store.insert(other, build.fleet())
        assert fleet_store.list_all(conn) == ()


def test_writers_queue_and_none_is_lost(database: Database) -> None:
    """Both read the version before either writes, unless the second waits at its start."""
    with database.write() as conn:
        fleet_store.insert(conn, build.fleet(version=1))

    def bump() -> None:
        with database.write() as conn:
            locked = fleet_store.get(conn, "main")
            fleet_store.save(conn, locked)

    threads = [threading.Thread(target=_until_done, args=(bump,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    with database.read() as conn:
        assert fleet_store.get(conn, "main").version == 5


def test_migrating_from_many_threads_at_once_is_migrating_once(database: Database) -> None:
    """Every replica migrates at its start, and they start together."""
    failures: list[BaseException] = []

    def migrate() -> None:
        try:
            database.migrate(assets.migrations())
        except BaseException as error:  # noqa: BLE001 - told below
            failures.append(error)

    threads = [threading.Thread(target=migrate) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []


def test_a_second_process_may_not_control_the_same_file(sqlite_url: str) -> None:
    """Two leaders on one file would each believe that they are alone."""
    database = Database.open(sqlite_url)
    with database.guard_single_writer():
        assert _guarding_elsewhere(sqlite_url) == "refused"
        with pytest.raises(ConflictError, match="stop it first"), database.guard_single_writer():
            pass
    assert _guarding_elsewhere(sqlite_url) == "controls"
    database.close()


def test_other_databases_are_refused_without_showing_a_password() -> None:
    with pytest.raises(InvalidValueError, match=r"mysql://me:\*\*\*@host/x") as refused:
        Database.open("mysql://me:secret@host/x")
    assert "secret" not in str(refused.value)
    with pytest.raises(InvalidValueError):
        Database.open("sqlite://")


def _insert_twice(conn: Connection) -> None:
    fleet_store.insert(conn, build.fleet())
    fleet_store.insert(conn, build.fleet())


def _until_done(act: object) -> None:
    from controlplane.domain.errors import StaleVersionError

    assert callable(act)
    for _ in range(20):
        try:
            act()
        except StaleVersionError:
            continue
        return


def _guarding_elsewhere(url: str) -> str:
    program = f"""
        from controlplane.domain.errors import ConflictError
        from controlplane.store.transaction import Connection, Database
        try:
            with Database.open({url!r}).guard_single_writer():
                print("controls")
        except ConflictError:
            print("refused")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return done.stdout.strip()
