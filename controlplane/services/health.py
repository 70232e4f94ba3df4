"""Whether the database is what this release works on."""

from controlplane.store import schema
from controlplane.store.transaction import Connection


def is_current(conn: Connection, *, newest: str | None) -> bool:
    """Whether the database answers and is at the migration `newest`."""
    return newest is not None and schema.present(conn) == newest
