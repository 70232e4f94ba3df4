"""A fleet with a past, for pages to show: one canary promoted, one rolled back, one that runs.

Everything in it was decided by the real services and reconcilers on a simulated fleet.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from controlplane import app
from controlplane.api import server
from controlplane.app import Parts
from controlplane.cli import sample
from controlplane.domain.canary import TERMINAL, Phase
from controlplane.services import imports
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
PAGES = (
    "/",
    f"/fleets/{FLEET}",
    f"/fleets/{FLEET}/workers/{WORKER}",
    "/canaries",
    f"/canaries/{PROMOTED}",
    f"/canaries/{ROLLED_BACK}",
    f"/canaries/{RUNNING}",
    f"/canaries/{ROLLED_BACK}/decisions",
    "/reports/weekly",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running control plane and what is behind it."""

    url: str
    token: str
    fleet: Fleet
    parts: Parts


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
    settings = Settings(state_dir=state_dir, is_reconciling=False, hold_s=0.001, hold_jitter_s=0)
    app.opened(settings).close()
    fleet = fill(database)
    parts = app.assemble(
        settings, database=database, clock=fleet.world.timeline, new_id=CountingId()
    )
    token = (state_dir / app.ADMIN_TOKEN_FILE).read_text().strip()
    with frames.answering(frames.picture()) as address, _answering(parts) as url:
        with database.write() as conn:
            # The simulation streams nothing; this one worker does.
            conn.exec_driver_sql(
                f"update workers set address = '{address}' where name = '{WORKER}'"  # noqa: S608
            )
        yield Site(url=url, token=token, fleet=fleet, parts=parts)


@contextmanager
def _answering(parts: Parts) -> Iterator[str]:
    config = uvicorn.Config(parts.app, log_config=None, access_log=False, ws="none", lifespan="on")
    running = server._Server(config, signals=parts.context.signals)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield server.url_of(listener)
        finally:
            running.should_exit = True
            thread.join()
