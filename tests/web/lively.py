"""A fleet with a past, for pages to show: one canary promoted, one rolled back, one that runs.

Everything in it was decided by the real services and reconcilers on a simulated fleet.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from controlplane import app
from controlplane.api import server
from controlplane.app import Parts
from controlplane.cli import sample
from controlplane.domain.canary import TERMINAL, Phase
from controlplane.services import fleets, imports
from controlplane.settings import Settings
from controlplane.simulation.worker import Behaviour
from controlplane.store.transaction import Database
from tests.clock import CountingId
from tests.simulation import fleet_of
from tests.simulation.fleet_of import Fleet
from tests.web import frames

FLEET = fleet_of.FLEET
WORKER = fleet_of.NAMES[0]
# Unlike in the demo it is well here, so that it runs long enough to be looked at.
_GOOD = {"fused_all": Behaviour(fps_mean=25.1, kept_bytes_per_length=fleet_of.MIB // 2)}
PROMOTED, ROLLED_BACK, RUNNING = (f"fused-allreduce-{number}" for number in (1, 2, 3))
EMPTY, STOPPED = "empty", "stopped"
# Every route of a page and addresses of it; the tests hold that none is left out.
ADDRESSES = {
    "/": ("/",),
    "/login": ("/login",),
    "/fleets/{fleet}": tuple(f"/fleets/{name}" for name in (FLEET, EMPTY, STOPPED, sample.FLEET)),
    "/fleets/{fleet}/workers/{worker}": (
        f"/fleets/{FLEET}/workers/{WORKER}",
        f"/fleets/{FLEET}/workers/{fleet_of.NAMES[1]}",
    ),
    "/canaries": ("/canaries", f"/canaries?fleet={EMPTY}"),
    "/canaries/{name}": tuple(f"/canaries/{name}" for name in (PROMOTED, ROLLED_BACK, RUNNING)),
    "/canaries/{name}/decisions": (f"/canaries/{ROLLED_BACK}/decisions",),
    "/reports/weekly": (
        "/reports/weekly",
        f"/reports/weekly?fleet={sample.FLEET}&anchor=2026-10-08",
        f"/reports/weekly?fleet={EMPTY}",
    ),
}
NOT_PAGES = {
    "/events",
    "/fleets/{fleet}/workers/{worker}/preview.jpg",
    "/static/{name}",
}
PAGES = tuple(address for addresses in ADDRESSES.values() for address in addresses)


class Site:
    """A running control plane and what is behind it; it can be stopped and started again."""

    def __init__(self, fleet: Fleet, state_dir: Path) -> None:
        self.fleet = fleet
        self._settings = _settings(state_dir)
        self._new_id = CountingId()
        self._port = 0  # any, the first time
        self.parts = self._assembled()
        self.token = (state_dir / app.ADMIN_TOKEN_FILE).read_text().strip()
        self.url = ""

    def start(self) -> None:
        """Answer, at the same address as before."""
        self.parts = self._assembled()
        config = uvicorn.Config(
            self.parts.app, log_config=None, access_log=False, ws="none", lifespan="on"
        )
        self._server = server._Server(config, signals=self.parts.context.signals)
        listener = socket.create_server(("127.0.0.1", self._port))
        self.url, self._port = server.url_of(listener), listener.getsockname()[1]
        self._thread = threading.Thread(target=self._run, args=(listener,))
        self._thread.start()

    def stop(self) -> None:
        """End in order."""
        self._server.should_exit = True
        self._thread.join()

    def _run(self, listener: socket.socket) -> None:
        with listener:
            self._server.run(sockets=[listener])

    def _assembled(self) -> Parts:
        return app.assemble(
            self._settings,
            database=self.fleet.database,
            clock=self.fleet.world.timeline,
            new_id=self._new_id,
        )


def fill(database: Database) -> Fleet:
    """A fleet of four workers, some minutes old, in the middle of its third canary."""
    fleet = fleet_of.adopted(database, seed=11, behaviours={**fleet_of.BEHAVIOURS, **_GOOD})
    fleet.run_to(fleet.start("fused_steady"), *TERMINAL)
    fleet.world.run(seconds=40)
    fleet.run_to(fleet.start("fused_small_tiles"), *TERMINAL)
    fleet.world.run(seconds=20)
    fleet.run_to(fleet.start("fused_all"), Phase.PROGRESSING)
    fleet.world.run(seconds=13)
    _import_sample(fleet)
    with database.write() as conn:
        fleets.adopt(conn, EMPTY, act=fleet.act("adopt"))
        fleets.adopt(conn, STOPPED, act=fleet.act("adopt"))
        fleets.stop_the_line(conn, STOPPED, act=fleet.act("frozen frames, ticket 4711"))
    return fleet


def _import_sample(fleet: Fleet) -> None:
    """The seven weeks of `steadyframe import sample`."""
    table = sample.table()
    with fleet.database.write() as conn:
        act = fleet.act("to look at")
        sent = imports.Table(columns=table.columns, lines=table.lines, rows=table.rows)
        sessions = imports.parsed(conn, sent, now=act.now)
        imports.take(conn, sessions, fleet=sample.FLEET, is_sample=True, act=act)


@contextmanager
def site(database: Database, state_dir: Path) -> Iterator[Site]:
    """The application over a filled database, on the clock of the simulation and a real socket."""
    app.opened(_settings(state_dir)).close()
    made = Site(fill(database), state_dir)
    with frames.answering(frames.picture()) as address:
        with database.write() as conn:
            # The simulation streams nothing; this one worker does.
            conn.exec_driver_sql(
                f"update workers set address = '{address}' where name = '{WORKER}'"  # noqa: S608
            )
        made.start()
        try:
            yield made
        finally:
            made.stop()


def _settings(state_dir: Path) -> Settings:
    return Settings(state_dir=state_dir, is_reconciling=False, hold_s=0.001, hold_jitter_s=0)
