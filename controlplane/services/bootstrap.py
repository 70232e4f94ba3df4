"""What must be there before the first request: flags, shipped policies, and a first admin token."""

from collections.abc import Callable, Iterable

from controlplane.services import flags, policies, tokens
from controlplane.services.change import Act
from controlplane.services.tokens import ADMIN, Grant
from controlplane.store.transaction import Connection

ACTOR = "steadyframe"


def load_documents(
    conn: Connection, *, catalogue: str, shipped_policies: Iterable[str], act: Act
) -> None:
    """Make `catalogue` the catalogue and keep the policies that come with Steadyframe.

    A policy that was uploaded under the same name since stays the newest.

    Raises:
        InvalidValueError: one of them does not hold together: the installation is broken.
    """
    flags.load(conn, catalogue)
    for document in shipped_policies:
        policies.add(conn, document, act=act)


def admin_token(
    conn: Connection,
    *,
    known: str | None,
    is_embedded: bool,
    new_secret: Callable[[], str],
    act: Act,
) -> str | None:
    """A new admin token, or None if the one that is `known` still is one.

    A shared database that has an admin already gets no second one from each process that starts.
    """
    if known is not None:
        principal = tokens.principal(conn, token=known, now=act.now)
        if principal is not None and principal.role == ADMIN:
            return None
    if not is_embedded and any(
        token.role == ADMIN and token.is_valid(now=act.now) for token in tokens.list_all(conn)
    ):
        return None
    change = tokens.create(conn, Grant(role=ADMIN), new_secret=new_secret, act=act)
    return change.secret["token"]
