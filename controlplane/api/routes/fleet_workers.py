"""The workers of a fleet, as people see and change them."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, paging, views
from controlplane.api.changes import ByOperator
from controlplane.api.context import Here
from controlplane.api.schemas import (
    DEFAULT_LIMIT,
    Because,
    Cursor,
    Limit,
    NamePath,
    PinRequest,
    UnpinRequest,
)
from controlplane.services import overrides, workers

router = APIRouter(prefix="/v1/fleets/{fleet}/workers", tags=["fleets"])


@router.get("")
def list_workers(
    fleet: NamePath,
    here: Here,
    _: auth.Viewer,
    cursor: Cursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Workers of the fleet, by name."""
    with here.database.read() as conn:
        found = workers.list_page(conn, fleet, after=cursor, limit=limit + 1)
    return paging.page(found, limit=limit, key=lambda one: str(one["name"]))


@router.get("/{worker}")
def show_worker(fleet: NamePath, worker: NamePath, here: Here, _: auth.Viewer) -> Any:
    """One worker."""
    with here.database.read() as conn:
        return views.plain(workers.show(conn, fleet, worker))


@router.get("/{worker}/explain")
def explain(fleet: NamePath, worker: NamePath, here: Here, _: auth.Viewer) -> Any:
    """For each flag: variant, layer and reason; and what is effective."""
    with here.database.read() as conn:
        return views.plain(workers.explain(conn, fleet, worker, now=here.clock.now()))


@router.post("/{worker}/pins")
def pin(fleet: NamePath, worker: NamePath, body: PinRequest, change: ByOperator) -> JSONResponse:
    """Hold one flag of one worker at a variant, for some hours."""
    wanted = overrides.Wanted(flag=body.flag, variant=body.variant, lasts_s=body.expires_in_s)
    return change.make(
        body, lambda conn, act: overrides.pin(conn, fleet, worker, wanted=wanted, act=act)
    )


@router.post("/{worker}/unpin")
def unpin(
    fleet: NamePath, worker: NamePath, body: UnpinRequest, change: ByOperator
) -> JSONResponse:
    """End a pin."""
    return change.make(
        body, lambda conn, act: overrides.unpin(conn, fleet, worker, flag=body.flag, act=act)
    )


@router.post("/{worker}/cordon")
def cordon(fleet: NamePath, worker: NamePath, body: Because, change: ByOperator) -> JSONResponse:
    """Take no new session there, and no part in canaries."""
    return change.make(
        body,
        lambda conn, act: overrides.set_cordoned(conn, fleet, worker, is_cordoned=True, act=act),
    )


@router.post("/{worker}/uncordon")
def uncordon(fleet: NamePath, worker: NamePath, body: Because, change: ByOperator) -> JSONResponse:
    """End a cordon."""
    return change.make(
        body,
        lambda conn, act: overrides.set_cordoned(conn, fleet, worker, is_cordoned=False, act=act),
    )


@router.post("/{worker}/restore")
def restore(fleet: NamePath, worker: NamePath, body: Because, change: ByOperator) -> JSONResponse:
    """Close its breaker and end its quarantine: someone has looked."""
    return change.make(body, lambda conn, act: overrides.restore(conn, fleet, worker, act=act))
