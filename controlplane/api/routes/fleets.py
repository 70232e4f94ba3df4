"""Fleets, as people see and change them."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, views
from controlplane.api.changes import ByOperator
from controlplane.api.context import Here
from controlplane.api.schemas import Adoption, Because, ModeChange, NamePath
from controlplane.domain.fleet import Mode
from controlplane.services import fleets

router = APIRouter(prefix="/v1/fleets", tags=["fleets"])
CREATED = 201


@router.get("")
def list_fleets(here: Here, principal: auth.Viewer) -> Any:
    """Every fleet that the token may see, by name."""
    with here.database.read() as conn:
        found = fleets.list_all(conn)
    return views.whole([one for one in found if principal.fleet in (None, one.name)])


@router.post("", status_code=CREATED)
def adopt(body: Adoption, change: ByOperator) -> JSONResponse:
    """Take in a fleet, in mode observe."""
    auth.check_fleet(change.principal, body.name)
    return change.make(
        body, lambda conn, act: fleets.adopt(conn, body.name, act=act), status=CREATED
    )


@router.get("/{fleet}")
def show_fleet(fleet: NamePath, here: Here, _: auth.Viewer) -> Any:
    """One fleet."""
    with here.database.read() as conn:
        return views.plain(fleets.show(conn, fleet))


@router.post("/{fleet}/mode")
def set_mode(fleet: NamePath, body: ModeChange, change: ByOperator) -> JSONResponse:
    """Let the fleet act, or only judge."""
    mode = Mode(body.mode)
    return change.make(body, lambda conn, act: fleets.set_mode(conn, fleet, mode, act=act))


@router.post("/{fleet}/stop-the-line")
def stop_the_line(fleet: NamePath, body: Because, change: ByOperator) -> JSONResponse:
    """Every worker to its fallback, until it is lifted."""
    return change.make(body, lambda conn, act: fleets.stop_the_line(conn, fleet, act=act))


@router.post("/{fleet}/lift")
def lift(fleet: NamePath, body: Because, change: ByOperator) -> JSONResponse:
    """End a stop-the-line."""
    return change.make(body, lambda conn, act: fleets.lift(conn, fleet, act=act))
