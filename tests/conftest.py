"""What every test may use: a database of each kind, a clock to move by hand, ids that count."""

import ipaddress
import os
import shutil
import signal
import socket
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from controlplane import assets
from controlplane.store.transaction import Database
from tests import postgres
from tests.clock import CountingId, FakeClock

settings.register_profile(
    "tests",
    deadline=None,  # the machine is shared; durations say nothing
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("tests")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background so, and every process that a test starts would
    # inherit it: none could be ended as a person ends it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
_numbers = count(1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def new_id() -> CountingId:
    return CountingId()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """An empty migrated database, once of each kind."""
    url = request.getfixturevalue(f"{request.param}_url")
    database = Database.open(url)
    yield database
    database.close()


@pytest.fixture
def sqlite_database(sqlite_url: str) -> Iterator[Database]:
    """An empty migrated SQLite database, for what is no matter of databases."""
    database = Database.open(sqlite_url)
    yield database
    database.close()


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    copy = tmp_path / "steadyframe.db"
    shutil.copyfile(sqlite_template, copy)
    return f"sqlite:///{copy}"


@pytest.fixture
def postgresql_url(postgres_server: postgres.Server) -> Iterator[str]:
    name = f"steadyframe_{os.getpid()}_{next(_numbers)}"
    with postgres_server.copy_of(postgres.TEMPLATE, name=name) as url:
        yield url


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    _migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> postgres.Server:
    shared = tmp_path_factory.getbasetemp()
    owner = os.getpid()
    if worker_id != "master":  # under xdist: one server for all, and the parent is the run
        shared, owner = shared.parent, os.getppid()
    try:
        return postgres.ensure(shared, owner=owner, migrate=_migrate)
    except postgres.NoPostgresError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture(scope="session", autouse=True)
def _loopback_only() -> Iterator[None]:
    """Nothing that a test does may reach out of this machine."""
    connect = socket.socket.connect

    def checked(self: socket.socket, address: Any) -> None:
        if self.family in (socket.AF_INET, socket.AF_INET6) and not _is_loopback(address[0]):
            message = f"a test tried to reach {address[0]}"
            raise AssertionError(message)
        connect(self, address)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", checked)
        yield


def _is_loopback(host: str) -> bool:
    return host == "localhost" or ipaddress.ip_address(host).is_loopback


def _migrate(url: str) -> None:
    database = Database.open(url)
    database.migrate(assets.migrations())
    database.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a GPU where there is none: a skip would say that it was meant to run."""
    if Path("/dev/nvidiactl").exists():
        return
    left_out = [item for item in items if item.get_closest_marker("cuda")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("cuda")]
