"""A throw-away PostgreSQL server: one for a test run, gone with the process it was started for.

`ensure` starts it unless another process of the same run has. This file, run as a program, is the
server's keeper: it waits for the run to end, in whatever way, stops it and removes its files.
"""

import fcntl
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql

TEMPLATE = "steadyframe_template"
_NEEDED = (
    "the tests need PostgreSQL's server and found no initdb in PATH or /usr/lib/postgresql; type:"
    "\n\n    apt-get install postgresql\n"
)
_SETTINGS = (
    "fsync=off",
    "synchronous_commit=off",
    "full_page_writes=off",
    "max_connections=100",
    "shared_buffers=32MB",
)
# initdb takes a second here and up to a minute where every core is taken.
_START_WITHIN_S = 90.0
_POLL_S = 0.1


class NoPostgresError(Exception):
    """PostgreSQL is not installed; says what to type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server."""

    port: int
    folder: str

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}"

    @contextmanager
    def admin(self) -> Iterator[psycopg.Connection]:
        """A connection outside every transaction, to make and drop databases."""
        conninfo = f"host=127.0.0.1 port={self.port} user=postgres dbname=postgres"
        with psycopg.connect(conninfo, autocommit=True) as connection:
            yield connection

    @contextmanager
    def copy_of(self, template: str, *, name: str) -> Iterator[str]:
        """A database like `template`, dropped afterwards; yields its URL."""
        new, old = sql.Identifier(name), sql.Identifier(template)
        with self.admin() as connection:
            # A copy of files is a tenth of the time of a copy through the log.
            create = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(new, old)
            if connection.info.server_version >= 150_000:
                create += sql.SQL(" STRATEGY file_copy")
            connection.execute(create)
        try:
            yield self.url(name)
        finally:
            with self.admin() as connection:
                connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(new))


def ensure(shared: Path, *, owner: int, migrate: Callable[[str], None]) -> Server:
    """The server of this test run, started and its template filled if it is not there yet.

    Args:
        shared: a folder that all processes of the run share.
        owner: process id of the run; the server goes when it does.
        migrate: builds the schema in the database of a URL.

    Raises:
        NoPostgresError: it is not installed.
    """
    state = shared / "postgres.json"
    with (shared / "postgres.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if state.exists():
            return Server(**json.loads(state.read_text()))
        server = _start(owner)
        with server.admin() as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
        migrate(server.url(TEMPLATE))
        state.write_text(json.dumps(asdict(server)))
        return server


def _start(owner: int) -> Server:
    binaries = _binaries()
    folder = tempfile.mkdtemp(prefix="steadyframe-postgres-")
    port = _free_port()
    keeper = subprocess.Popen(
        [sys.executable, __file__, str(owner), folder, str(port), str(binaries)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C stops the tests first
    )
    server = Server(port=port, folder=folder)
    deadline = time.monotonic() + _START_WITHIN_S
    while not _answers(server):
        if keeper.poll() is not None or time.monotonic() > deadline:
            keeper.kill()
            message = f"PostgreSQL did not start (its log is gone with {folder})"
            raise AssertionError(message)
        time.sleep(_POLL_S)
    # The keeper outlives this process by a moment, so nobody here will wait for it.
    keeper.returncode = 0
    return server


def _answers(server: Server) -> bool:
    try:
        with server.admin():
            return True
    except psycopg.OperationalError:
        return False


def _binaries() -> Path:
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    installed = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3])
    )
    if not installed:
        raise NoPostgresError(_NEEDED)
    return installed[-1].parent


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


# --- the keeper ----------------------------------------------------------------------------------


def _keep(owner: int, folder: Path, port: int, binaries: Path) -> None:
    """Run a server in `folder` until the process `owner` is gone."""
    user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    if os.geteuid() == 0:  # initdb refuses to run as root
        shutil.chown(folder, user, user)
    try:
        with (folder / "log").open("w") as log:
            cluster = folder / "data"
            initdb = [
                binaries / "initdb",
                "-D",
                cluster,
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
            ]
            _run([*map(str, initdb), "--no-sync", "--locale=C"], user=user, log=log).wait()
            settings = [part for one in _SETTINGS for part in ("-c", one)]
            command = [str(binaries / "postgres"), "-D", str(cluster), "-p", str(port)]
            command += ["-h", "127.0.0.1", "-k", str(folder), *settings]
            server = _run(command, user=user, log=log)
            while _is_alive(owner) and server.poll() is None:
                time.sleep(_POLL_S)
            _stop(server, cluster)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(command: list[str], *, user: str, log: IO[str]) -> subprocess.Popen[str]:
    prefix = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    return subprocess.Popen(
        [*prefix, *command],
        stdout=log,
        stderr=log,
        text=True,
        cwd="/",
        env={"PATH": os.environ["PATH"]},
    )


def _stop(server: subprocess.Popen[str], cluster: Path) -> None:
    """Stop at once: nothing in there is wanted any more."""
    pid_file = cluster / "postmaster.pid"
    if pid_file.exists():
        os.kill(int(pid_file.read_text().splitlines()[0]), signal.SIGQUIT)
    server.wait(timeout=30)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    _keep(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
