"""The only seam between the databases: how each connects, locks, inserts and notifies."""

import fcntl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any, Final

from sqlalchemy import (
    ARRAY,
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    make_url,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite

from controlplane.domain.errors import ConflictError, InvalidValueError
from controlplane.store.columns import Json, to_json

CHANNEL: Final = "steadyframe"
POSTGRESQL: Final = "postgresql"
SQLITE: Final = "sqlite"

# A tick and a request are over in well under a second; what waits longer is stuck and must fail.
_POSTGRESQL_SETTINGS: Final = (
    "-c timezone=UTC -c lock_timeout=5s -c statement_timeout=30s"
    " -c idle_in_transaction_session_timeout=30s"
)
_BUSY_TIMEOUT_MS: Final = 5000


def engine_of(url: str) -> Engine:
    """An engine for `url`: `sqlite:///FILE` or `postgresql+psycopg://...`.

    Raises:
        InvalidValueError: another kind of database.
    """
    parsed = make_url(url)
    match parsed.get_backend_name():
        case "sqlite" if parsed.database and parsed.database != ":memory:":
            return _sqlite_engine(parsed)
        case "postgresql":
            return _postgresql_engine(parsed.set(drivername="postgresql+psycopg"))
        case _:
            pass
    raise InvalidValueError(
        "database url",
        parsed.render_as_string(hide_password=True),
        allowed="sqlite:///FILE, postgresql+psycopg://USER@HOST/NAME",
    )


def read_options(engine: Engine) -> dict[str, object]:
    """Execution options of a transaction that sees one snapshot and writes nothing."""
    if engine.dialect.name == POSTGRESQL:
        return {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    return {"begin": ("PRAGMA query_only = ON", "BEGIN")}


def write_options(engine: Engine) -> dict[str, object]:
    """Execution options of a transaction that writes."""
    if engine.dialect.name == POSTGRESQL:
        return {}
    # IMMEDIATE: two writers queue at the start, where waiting is safe, not at their first write.
    return {"begin": ("PRAGMA query_only = OFF", "BEGIN IMMEDIATE")}


def upsert(
    conn: Connection,
    table: Table,
    rows: Mapping[str, object] | Sequence[Mapping[str, object]],
    *,
    where: ColumnElement[bool] | None = None,
    owner: str | None = None,
) -> int:
    """Insert `rows`, or overwrite those of the same primary key where `where` holds.

    With `owner`, a row is overwritten only by one that has the same value in that column.

    Returns: rows written; only for a single row do all drivers say so.
    """
    statement = _insert(conn, table)
    key = [column.name for column in table.primary_key]
    first = rows if isinstance(rows, Mapping) else rows[0]
    changed = {name: statement.excluded[name] for name in first if name not in key}
    if owner is not None:
        where = table.c[owner] == statement.excluded[owner]
    is_many = conn.dialect.name == POSTGRESQL and not isinstance(rows, Mapping)
    if is_many and not isinstance(rows, Mapping):
        columns = [table.c[name] for name in first]
        statement = statement.from_select(columns, _unnested(columns, rows))
    statement = statement.on_conflict_do_update(index_elements=key, set_=changed, where=where)
    statement = statement.execution_options(preserve_rowcount=True)
    return conn.execute(statement, None if is_many else rows).rowcount


def add_up(
    conn: Connection, table: Table, rows: Sequence[Mapping[str, object]], *, sums: Sequence[str]
) -> None:
    """Insert `rows`, or add their `sums` to those of the same primary key."""
    statement = _insert(conn, table)
    key = [column.name for column in table.primary_key]
    added = {name: table.c[name] + statement.excluded[name] for name in sums}
    conn.execute(statement.on_conflict_do_update(index_elements=key, set_=added), rows)


def insert_new(
    conn: Connection, table: Table, rows: Sequence[Mapping[str, object]]
) -> frozenset[tuple[Any, ...]]:
    """Insert those of `rows` whose key is not there; plain columns only, all rows of one shape.

    Returns: primary keys of the rows that were new.
    """
    if not rows:
        return frozenset()
    key = list(table.primary_key)
    statement = _insert(conn, table)
    if conn.dialect.name == POSTGRESQL:
        # One statement of constant text for any number of rows: a third of the cost of VALUES.
        columns = [table.c[name] for name in rows[0]]
        unnested = statement.from_select(columns, _unnested(columns, rows))
        found = conn.execute(unnested.on_conflict_do_nothing().returning(*key))
    else:
        found = conn.execute(statement.on_conflict_do_nothing().returning(*key), rows)
    return frozenset(tuple(row) for row in found)


def lock_row(conn: Connection, statement: Select[Any], *, of: Table | None = None) -> Select[Any]:
    """`statement`, holding what it finds until the transaction ends; of a join, rows of `of`."""
    if conn.dialect.name != POSTGRESQL:
        return statement  # BEGIN IMMEDIATE holds the whole file
    # FOR NO KEY UPDATE: two of these wait for each other, a foreign key to the row does not.
    return statement.with_for_update(of=of, key_share=True)


def serialise(conn: Connection, name: str) -> None:
    """Let one transaction at a time pass here, by `name`, until it ends."""
    if conn.dialect.name == POSTGRESQL:
        conn.execute(text("SELECT pg_advisory_xact_lock(hashtext(:name))"), {"name": name})


def notify(conn: Connection, topics: Iterable[str]) -> None:
    """Tell the other processes of each topic when the transaction commits; SQLite has none."""
    if conn.dialect.name == POSTGRESQL:
        for topic in topics:
            conn.execute(
                text("SELECT pg_notify(:channel, :topic)"), {"channel": CHANNEL, "topic": topic}
            )


def guard_single_writer(engine: Engine) -> AbstractContextManager[None]:
    """Hold the right to run the controller on an SQLite file; PostgreSQL elects a leader instead.

    Raises:
        ConflictError: on entering, if another process holds it.
    """
    database = engine.url.database
    if engine.dialect.name == POSTGRESQL or database is None:
        return nullcontext()
    return _locked(Path(f"{database}.controller"))


@contextmanager
def _locked(path: Path) -> Any:
    # The kernel lets go when the process dies, however it dies: no stale lock to remove by hand.
    with path.open("w") as file:
        _lock(file, path)
        yield


def _lock(file: IO[str], path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        message = (
            f"another Steadyframe process controls this database (it holds {path}):"
            " stop it first, or use PostgreSQL to run several"
        )
        raise ConflictError(message) from error


def _insert(conn: Connection, table: Table) -> Any:
    if conn.dialect.name == POSTGRESQL:
        return postgresql.insert(table)
    return sqlite.insert(table)


def _unnested(columns: Sequence[Column[Any]], rows: Sequence[Mapping[str, object]]) -> Select[Any]:
    """One column of values for each of `columns`: the rows in one statement of constant text."""
    return select(*(_unnested_column(column, rows) for column in columns))


def _unnested_column(
    column: Column[Any], rows: Sequence[Mapping[str, object]]
) -> ColumnElement[Any]:
    name = f"all_{column.name}"
    values = [row[column.name] for row in rows]
    if not isinstance(column.type, Json):
        return func.unnest(bindparam(name, values, type_=ARRAY(column.type)))
    # An array of jsonb would be read as one JSON array.
    texts = [None if value is None else to_json(value) for value in values]
    return cast(func.unnest(bindparam(name, texts, type_=ARRAY(Text))), postgresql.JSONB)


def _postgresql_engine(url: URL) -> Engine:
    return create_engine(
        url,
        isolation_level="READ COMMITTED",
        connect_args={"options": _POSTGRESQL_SETTINGS},
        json_serializer=to_json,
    )


def _sqlite_engine(url: URL) -> Engine:
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: object) -> None:
        # The driver's own BEGIN comes late and never IMMEDIATE, so ours is sent below.
        connection.isolation_level = None
        for pragma in (
            f"busy_timeout = {_BUSY_TIMEOUT_MS}",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        for statement in connection.get_execution_options().get("begin", ("BEGIN",)):
            connection.exec_driver_sql(statement)

    return engine
