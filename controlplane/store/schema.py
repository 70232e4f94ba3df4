"""Which migration the database is at, and which is the newest we have."""

from pathlib import Path

from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection


def newest(scripts: Path) -> str | None:
    """The revision that `Database.migrate(scripts)` leads to."""
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return ScriptDirectory.from_config(config).get_current_head()


def present(conn: Connection) -> str | None:
    """The revision that the database is at, or None if it was never migrated."""
    return MigrationContext.configure(conn).get_current_revision()
