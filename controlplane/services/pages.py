"""What each page shows, read in one transaction: values, no words and no markup."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.domain.canary import TERMINAL
from controlplane.domain.fleet import Worker
from controlplane.services import canaries, fleets, workers
from controlplane.store import canaries as canary_store
from controlplane.store import history, session_views
from controlplane.store import workers as worker_store
from controlplane.store.history import Flip, Transition
from controlplane.store.queries import FleetRow
from controlplane.store.session_views import ProcessView, SessionView
from controlplane.store.transaction import Connection

# As many as a person looks through; the lists of the API go on from there.
NUM_SESSIONS = 400
NUM_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPage:
    """A fleet, its workers, what they serve and what is tried there."""

    fleet: FleetRow
    workers: tuple[Worker, ...]
    sessions: tuple[SessionView, ...]
    canaries: tuple[Mapping[str, Any], ...]  # summaries, newest first


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPage:
    """One worker: what it should run and why, what it runs, and what it served."""

    worker: Worker
    explained: Mapping[str, Any]
    process: ProcessView | None
    sessions: tuple[SessionView, ...]
    flips: tuple[Flip, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryPage:
    """One canary: the judgement, what happened, and the sessions that it was judged on."""

    shown: Mapping[str, Any]
    transitions: tuple[Transition, ...]  # newest first
    sessions: tuple[SessionView, ...]


def fleet(conn: Connection, name: str) -> FleetPage:
    """The fleet's page. Raises: NotFoundError."""
    return FleetPage(
        fleet=fleets.show(conn, name),
        workers=worker_store.in_fleet(conn, fleet=name),
        sessions=session_views.recent(conn, fleet=name, limit=NUM_SESSIONS),
        canaries=canaries.list_page(conn, fleet=name, after=None, limit=NUM_SHOWN),
    )


def worker(conn: Connection, fleet_name: str, name: str, *, now: datetime) -> WorkerPage:
    """The worker's page. Raises: NotFoundError."""
    found = worker_store.get(conn, fleet=fleet_name, name=name)
    return WorkerPage(
        worker=found,
        explained=workers.explain(conn, fleet_name, name, now=now),
        process=session_views.process(conn, incarnation=found.incarnation),
        sessions=session_views.recent(conn, fleet=fleet_name, worker=name, limit=NUM_SHOWN),
        flips=history.flips_of(conn, worker_id=found.id, limit=NUM_SHOWN),
    )


def canary(conn: Connection, name: str, *, now: datetime) -> CanaryPage:
    """The canary's page. Raises: NotFoundError."""
    found = canary_store.get(conn, name_or_id=name)
    until = found.phase_since if found.phase in TERMINAL else now
    return CanaryPage(
        shown=canaries.show(conn, name, now=now),
        transitions=history.transitions_of(conn, canary_id=found.id, limit=NUM_SHOWN * 5),
        sessions=session_views.of_arms(conn, found, until=until, limit=NUM_SESSIONS),
    )


def address_of(conn: Connection, fleet_name: str, name: str) -> str:
    """Where the worker says that it can be reached. Raises: NotFoundError."""
    return worker_store.get(conn, fleet=fleet_name, name=name).address
