"""Canaries: begun, watched, told of quality, asked to pause, resume, abort or promote."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, paging, views
from controlplane.api.changes import ByOperator
from controlplane.api.context import Context, Here
from controlplane.api.problems import ForbiddenError
from controlplane.api.schemas import (
    DEFAULT_LIMIT,
    CanaryPath,
    CanaryRequest,
    CanaryStart,
    Cursor,
    Limit,
    NameQuery,
    QualityRequest,
    SequenceCursor,
)
from controlplane.domain.ledger import DisqualifiedError
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, explanations, qualities
from controlplane.services.change import Act, Change
from controlplane.services.qualities import Measured
from controlplane.services.tokens import Principal
from controlplane.store.transaction import Connection

router = APIRouter(prefix="/v1/canaries", tags=["canaries"])
CREATED = 201
ACCEPTED = 202


@router.post("", status_code=CREATED)
def start_canary(body: CanaryStart, change: ByOperator) -> JSONResponse:
    """Begin a canary; it is pending until the next tick."""
    auth.check_fleet(change.principal, body.fleet)
    wanted = canaries.Wanted(
        fleet=body.fleet,
        flag=body.flag,
        variant=body.variant,
        stack=body.stack,
        policy=body.policy,
        hardware=body.hardware,
        may_repeat=change.principal.role == auth.Role.ADMIN,
    )
    return change.make(body, lambda conn, act: _started(conn, wanted, act), status=CREATED)


@router.get("")
def list_canaries(
    here: Here,
    principal: auth.Viewer,
    fleet: NameQuery = None,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Canaries, newest first."""
    auth.check_fleet(principal, fleet)
    with here.database.read() as conn:
        found = canaries.list_page(
            conn, fleet=fleet or principal.fleet, after=cursor, limit=limit + 1
        )
    return paging.page(found, limit=limit, key=lambda one: str(one["id"]))


@router.get("/{name}")
def show_canary(name: CanaryPath, here: Here, principal: auth.Viewer) -> Any:
    """One canary: steps, bake, gates of the last decision, exposed workers, requests."""
    _check_fleet_of(here, principal, name)
    with here.database.read() as conn:
        return views.plain(canaries.show(conn, name, now=here.clock.now()))


@router.get("/{name}/explanation")
def explain_canary(name: CanaryPath, here: Here, principal: auth.Viewer) -> Any:
    """Why it stands where it stands: gates, evidence, what it still needs, what would change it."""
    _check_fleet_of(here, principal, name)
    with here.database.read() as conn:
        return views.plain(explanations.explain(conn, name, now=here.clock.now()))


@router.get("/{name}/decisions")
def list_decisions(
    name: CanaryPath,
    here: Here,
    principal: auth.Viewer,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Judgements with their gates and inputs, newest first."""
    _check_fleet_of(here, principal, name)
    with here.database.read() as conn:
        found = canaries.decisions(conn, name, after=cursor, limit=limit + 1)
    return paging.page(found, limit=limit, key=lambda one: one.id)


@router.get("/{name}/transitions")
def list_transitions(
    name: CanaryPath,
    here: Here,
    principal: auth.Viewer,
    cursor: SequenceCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """What happened to it, newest first."""
    _check_fleet_of(here, principal, name)
    with here.database.read() as conn:
        found = canaries.transitions(conn, name, after=cursor, limit=limit + 1)
    return paging.page(found, limit=limit, key=lambda one: one.sequence)


@router.post("/{name}/requests", status_code=ACCEPTED)
def ask(name: CanaryPath, body: CanaryRequest, change: ByOperator) -> JSONResponse:
    """Ask for something; the next tick answers."""
    _check_fleet_of(change.here, change.principal, name)
    kind = RequestKind(body.kind)
    return change.make(
        body, lambda conn, act: canaries.ask(conn, name, kind, act=act), status=ACCEPTED
    )


@router.get("/{name}/quality")
def list_qualities(
    name: CanaryPath,
    here: Here,
    principal: auth.Viewer,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """What was measured of the picture under its variant, newest first."""
    _check_fleet_of(here, principal, name)
    with here.database.read() as conn:
        found = qualities.list_page(conn, name, after=cursor, limit=limit + 1)
    return paging.page(found, limit=limit, key=lambda one: str(one["id"]))


@router.post("/{name}/quality", status_code=CREATED)
def report_quality(name: CanaryPath, body: QualityRequest, change: ByOperator) -> JSONResponse:
    """Report what was measured of the picture; the gate `quality` judges the newest report."""
    _check_fleet_of(change.here, change.principal, name)
    measured = Measured(measure=body.measure, value=body.value, num_samples=body.num_samples)
    return change.make(
        body, lambda conn, act: qualities.report(conn, name, measured, act=act), status=CREATED
    )


def _started(conn: Connection, wanted: canaries.Wanted, act: Act) -> Change:
    try:
        return canaries.start(conn, wanted, act=act)
    except DisqualifiedError as error:
        raise ForbiddenError(str(error)) from error


def _check_fleet_of(here: Context, principal: Principal, name: str) -> None:
    if principal.fleet is None:
        return
    with here.database.read() as conn:
        auth.check_fleet(principal, canaries.fleet_of(conn, name))
