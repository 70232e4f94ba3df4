"""Transactions: the one place that opens, commits and rolls back."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

from controlplane.store import availability, dialect

__all__ = ["Connection", "Database"]


class Database:
    """One database and its pool of connections."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str) -> "Database":
        """A database that nothing has been asked of yet.

        Args:
            url: `sqlite:///FILE` or `postgresql+psycopg://USER@HOST/NAME`.

        Raises:
            InvalidValueError: another kind of database.
        """
        return cls(dialect.engine_of(url))

    @property
    def url(self) -> str:
        """Where it is, without the password."""
        return self._engine.url.render_as_string(hide_password=True)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A connection that sees one snapshot and refuses to write. Raises: UnavailableError."""
        with availability.told(), self._engine.connect() as conn:
            yield conn.execution_options(**dialect.read_options(self._engine))
            conn.rollback()

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection whose changes are kept if the block ends without an exception.

        Raises:
            UnavailableError: the database cannot just now; nothing of the block is kept.
        """
        with availability.told(), self._engine.connect() as conn:
            yield conn.execution_options(**dialect.write_options(self._engine))
            conn.commit()

    def guard_single_writer(self) -> AbstractContextManager[None]:
        """Hold the right to control this database from this process; see `dialect`."""
        return dialect.guard_single_writer(self._engine)

    def migrate(self, scripts: Path) -> None:
        """Bring the schema to the newest migration; whoever comes second waits, then finds it done.

        Args:
            scripts: Alembic's folder, `assets.migrations()`.
        """
        with self.write() as conn:
            _wait_for_other_migrations(conn)
            config = Config()
            # ConfigParser reads % as its own.
            config.set_main_option("script_location", str(scripts).replace("%", "%%"))
            config.set_main_option("path_separator", "os")
            config.attributes["connection"] = conn
            command.upgrade(config, "head")

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()


def _wait_for_other_migrations(conn: Connection) -> None:
    if conn.dialect.name == dialect.POSTGRESQL:
        # A migration of a full table may take long; the limits are for ticks and requests.
        conn.execute(text("SET LOCAL statement_timeout = 0"))
        conn.execute(text("SET LOCAL lock_timeout = '60s'"))
        dialect.serialise(conn, "steadyframe migrations")
    else:
        conn.execute(text("SELECT 1"))  # sends BEGIN IMMEDIATE, which waits
