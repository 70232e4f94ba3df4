"""The catalogue of kernel flags."""

from controlplane.domain import flag as flags
from controlplane.domain.flag import Flag
from controlplane.services.documents import load_yaml
from controlplane.store import flags as flag_store
from controlplane.store.transaction import Connection


def load(conn: Connection, document: str) -> tuple[Flag, ...]:
    """Make the catalogue in `document` the catalogue.

    Raises:
        InvalidValueError: an unknown key or word, named with what is allowed.
    """
    catalogue = flags.parse_catalogue(load_yaml(document))
    if catalogue != flag_store.catalogue(conn):
        flag_store.put_catalogue(conn, catalogue)
    return catalogue


def list_all(conn: Connection) -> tuple[Flag, ...]:
    """Every flag, by name."""
    return flag_store.catalogue(conn)
