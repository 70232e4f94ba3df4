"""A token speaks for one principal, until it expires or is revoked, and the first one is made."""

from collections.abc import Iterator
from datetime import timedelta
from itertools import count

import pytest

from controlplane.domain.errors import InvalidValueError, NotFoundError
from controlplane.services import bootstrap, tokens
from controlplane.services.change import Act
from controlplane.services.tokens import Grant
from controlplane.store import tokens as token_store
from controlplane.store.tokens import Token
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import CountingId, FakeClock


@pytest.fixture
def conn(database: Database) -> Iterator[Connection]:
    with database.write() as conn:
        build.put_fleet(conn)
        yield conn


@pytest.fixture
def act(clock: FakeClock, new_id: CountingId) -> Act:
    return Act(actor="somebody", reason="a test", now=clock.now(), new_id=new_id)


def _secrets() -> Iterator[str]:
    return (f"secret-{number}" for number in count(1))


def test_a_token_stands_for_what_it_was_made_for(conn: Connection, act: Act) -> None:
    grant = Grant(role="worker", fleet=build.FLEET, worker="w-1")
    secret = tokens.create(conn, grant, new_secret=lambda: "x", act=act).secret["token"]

    principal = tokens.principal(conn, token=secret, now=act.now)

    assert principal is not None
    assert (principal.role, principal.fleet, principal.worker) == ("worker", build.FLEET, "w-1")
    assert tokens.principal(conn, token=secret + "x", now=act.now) is None


def test_a_token_ends_at_its_time(conn: Connection, act: Act) -> None:
    ends_at = act.now + timedelta(hours=1)
    token = Token(
        id="t-1",
        name="short",
        role="viewer",
        fleet=None,
        worker=None,
        created_at=act.now,
        expires_at=ends_at,
        revoked_at=None,
    )
    token_store.insert(conn, token, secret="sf_short")

    assert tokens.principal(conn, token="sf_short", now=ends_at - timedelta(microseconds=1))
    assert tokens.principal(conn, token="sf_short", now=ends_at) is None


@pytest.mark.parametrize(
    "grant",
    [Grant(role="worker"), Grant(role="viewer", worker="w-1"), Grant(role="admin", fleet="main")],
)
def test_a_grant_without_sense_is_refused(conn: Connection, act: Act, grant: Grant) -> None:
    with pytest.raises(InvalidValueError):
        tokens.create(conn, grant, new_secret=lambda: "x", act=act)


def test_a_fleet_that_is_not_there_gets_no_token(conn: Connection, act: Act) -> None:
    with pytest.raises(NotFoundError, match="there are: main"):
        tokens.create(conn, Grant(role="viewer", fleet="x"), new_secret=lambda: "x", act=act)


def test_each_embedded_state_folder_has_an_admin(conn: Connection, act: Act) -> None:
    made = _secrets()

    def start(known: str | None, *, is_embedded: bool) -> str | None:
        return bootstrap.admin_token(
            conn, known=known, is_embedded=is_embedded, new_secret=lambda: next(made), act=act
        )

    first = start(None, is_embedded=True)

    assert first == "sf_secret-1"
    assert start(first, is_embedded=True) is None
    assert start("sf_from-another-life", is_embedded=True) == "sf_secret-2"
    assert start(None, is_embedded=False) is None  # a shared database has an admin already


def test_what_is_no_admins_token_is_replaced(conn: Connection, act: Act) -> None:
    """A viewer's token in the file would lock everybody out."""
    viewer = tokens.create(conn, Grant(role="viewer"), new_secret=lambda: "v", act=act)

    made = bootstrap.admin_token(
        conn,
        known=viewer.secret["token"],
        is_embedded=True,
        new_secret=lambda: "a",
        act=act,
    )

    assert made == "sf_a"
