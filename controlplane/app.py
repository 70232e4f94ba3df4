"""Composition root: makes every part from the settings and puts them together.

Nothing else constructs an adapter. `create` is for tests and servers, `serve` for the command line.
"""

import asyncio
import json
import os
import random
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio.to_thread
import structlog
from fastapi import FastAPI

from controlplane import assets, telemetry
from controlplane import settings as settings_module
from controlplane.api import metrics, openapi, poller, problems, server
from controlplane.api.context import Context
from controlplane.api.limits import BodyLimit, HostAllowList, SafeHeaders
from controlplane.api.routes import (
    canaries,
    catalogue,
    decisions,
    fleet_workers,
    fleets,
    health,
    imports,
    office,
    otlp,
    qualifications,
    reports,
    workers,
)
from controlplane.api.routes import metrics as metrics_route
from controlplane.api.signals import Signals
from controlplane.clock import SystemClock, SystemNewId
from controlplane.ports import Clock, NewId
from controlplane.reconcilers.canary import CanaryReconciler
from controlplane.reconcilers.fleet import FleetReconciler
from controlplane.reconcilers.loop import Loop
from controlplane.reconcilers.retention import RetentionReconciler
from controlplane.services import bootstrap
from controlplane.services.change import Act
from controlplane.settings import Settings
from controlplane.store import schema
from controlplane.store.transaction import Database
from controlplane.web import entrance, live, pages

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

ADMIN_TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file, not a token
ADDRESS_FILE = "address.json"
CATALOGUE_FILE = "flags.yaml"
SECRET_BYTES = 32
# A worker that was silent for so long has lost its sessions.
LOST_AFTER = timedelta(minutes=2)
# A leader that missed two ticks is gone; but a process that is held up for seconds is not.
LEADER_TICKS = 3
LEAST_LEADER_LEASE = timedelta(seconds=3)
ROUTERS = (
    health.router,
    metrics_route.router,
    workers.router,
    otlp.router,
    fleets.router,
    fleet_workers.router,
    catalogue.router,
    canaries.router,
    decisions.router,
    qualifications.router,
    office.router,
    reports.router,
    imports.router,
    entrance.router,
    pages.router,
    live.router,
)
_TELEMETRY_PATHS = ("/v1/logs", "/v1/metrics")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What one process is made of."""

    context: Context
    loop: Loop
    app: FastAPI


def create(settings: Settings) -> FastAPI:
    """The application, its database migrated and filled with what it needs to start."""
    return assemble(settings, database=opened(settings)).app


def opened(settings: Settings) -> Database:
    """The database of `settings`, its folder made; nothing has been asked of it yet."""
    settings.state_path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Database.open(settings.database)


def assemble(
    settings: Settings,
    *,
    database: Database,
    clock: Clock | None = None,
    new_id: NewId | None = None,
) -> Parts:
    """Every part, made and connected; the reconcilers start with the application's lifespan."""
    clock, new_id = clock or SystemClock(), new_id or SystemNewId()
    database.migrate(assets.migrations())
    act = Act(actor=bootstrap.ACTOR, reason="start", now=clock.now(), new_id=new_id)
    _fill(database, settings, act=act)
    signals = Signals()
    loop = _loop(settings, database, signals, clock=clock, new_id=new_id)
    context = Context(
        database=database,
        clock=clock,
        new_id=new_id,
        new_secret=_new_secret,
        signals=signals,
        nudge=loop.nudge if settings.is_reconciling else _nobody,
        schema=schema.newest(assets.migrations()),
        last_tick_at=lambda: loop.last_tick_at,
        started_at=clock.now(),
        settings=settings,
        randomness=random.SystemRandom(),
    )
    return Parts(context=context, loop=loop, app=_application(context, loop))


def serve(settings: Settings) -> None:
    """Answer until the process is told to stop.

    Raises:
        ConflictError: another process controls the same embedded database.
        OSError: the address cannot be listened on.
    """
    telemetry.configure(log_format=settings.log_format, log_level=settings.log_level)
    for name in settings_module.unknown_names(os.environ):
        log.warning("setting_ignored", variable=name, reason="nothing reads it")
    database = opened(settings)
    # Before anything is written: a second process on the same file must leave it alone.
    with database.guard_single_writer():
        parts = assemble(settings, database=database)
        if settings.database.startswith("sqlite"):
            # The lock says that whoever led before is dead. Waiting for its time to run out would
            # let the leases of canaries lapse over every crash.
            parts.loop.take_over()
        with _listening(settings) as listener:
            server.answer(parts.app, listener, signals=parts.context.signals)
        log.info("server_stopped")


@contextmanager
def _listening(settings: Settings) -> Iterator[socket.socket]:
    """A bound socket, its address in `address.json` as long as it is there."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    path = settings.state_path / ADDRESS_FILE
    with socket.create_server((settings.host, settings.port), family=family) as listener:
        url = server.url_of(listener)
        host, port = listener.getsockname()[:2]
        address = {"url": url, "host": host, "port": port, "process": os.getpid()}
        _write(path, json.dumps(address), mode=0o644)
        log.info("server_started", url=url)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _application(context: Context, loop: Loop) -> FastAPI:
    settings = context.settings

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = settings.num_threads
        if settings.is_reconciling:
            loop.start()
        polling = asyncio.create_task(poller.poll(context))
        try:
            yield
        finally:
            context.signals.close()
            polling.cancel()
            await asyncio.wait([polling])
            await anyio.to_thread.run_sync(loop.stop)
            context.database.close()

    app = FastAPI(
        title="Steadyframe",
        lifespan=lifespan,
        docs_url=None,  # those pages load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    problems.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(
        BodyLimit,
        default=settings.max_body_bytes,
        by_prefix={
            **dict.fromkeys(_TELEMETRY_PATHS, settings.max_telemetry_bytes),
            imports.PREFIX: settings.max_import_bytes,
        },
    )
    app.add_middleware(HostAllowList, allowed=(settings.host, *settings.allowed_hosts))
    app.add_middleware(SafeHeaders)
    metrics.install(app)
    openapi.install(app, routers=ROUTERS)
    return app


def _loop(
    settings: Settings, database: Database, signals: Signals, *, clock: Clock, new_id: NewId
) -> Loop:
    tick = timedelta(seconds=settings.tick_s)
    return Loop(
        database,
        (
            CanaryReconciler(database, new_id=new_id, signals=signals, tick=tick),
            FleetReconciler(database, signals=signals, lost_after=LOST_AFTER, tick=tick),
            RetentionReconciler(database),
        ),
        clock=clock,
        holder=new_id(),
        tick=tick,
        lease=max(LEADER_TICKS * tick, LEAST_LEADER_LEASE),
    )


def _fill(database: Database, settings: Settings, *, act: Act) -> None:
    """Load the shipped documents and see to a first admin token; a second start changes nothing."""
    shipped = {path.name: path.read_text() for path in sorted(assets.policies().glob("*.yaml"))}
    path = settings.state_path / ADMIN_TOKEN_FILE
    known = path.read_text().strip() if path.exists() else None
    with database.write() as conn:
        bootstrap.load_documents(
            conn,
            catalogue=shipped.pop(CATALOGUE_FILE),
            shipped_policies=shipped.values(),
            act=act,
        )
        made = bootstrap.admin_token(
            conn,
            known=known,
            is_embedded=settings.database_url is None,
            new_secret=_new_secret,
            act=act,
        )
        if made is not None:
            # Inside the transaction: a token that could not be written down is not made.
            _write(path, made + "\n", mode=0o600)


def _write(path: Path, text: str, *, mode: int) -> None:
    """Put `text` there in one step, never readable by more than `mode` says."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    draft.replace(path)


def _new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


def _nobody() -> None:
    """Another process reconciles."""
