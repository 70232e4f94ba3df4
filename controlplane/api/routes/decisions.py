"""Decisions: read with all that went into them, and judged again."""

from typing import Any

from fastapi import APIRouter

from controlplane.api import auth, views
from controlplane.api.context import Context, Here
from controlplane.api.schemas import IdPath
from controlplane.services import decisions
from controlplane.services.tokens import Principal

router = APIRouter(prefix="/v1/decisions", tags=["canaries"])


@router.get("/{decision_id}")
def show_decision(decision_id: IdPath, here: Here, principal: auth.Viewer) -> Any:
    """One judgement with its gates and inputs."""
    _check_fleet_of(here, principal, decision_id)
    with here.database.read() as conn:
        return views.plain(decisions.get(conn, decision_id))


@router.post("/{decision_id}/verify")
def verify_decision(decision_id: IdPath, here: Here, principal: auth.Viewer) -> Any:
    """Judge it again from its stored inputs, and compare; nothing is changed."""
    _check_fleet_of(here, principal, decision_id)
    with here.database.read() as conn:
        return views.plain(decisions.verify(conn, decision_id))


def _check_fleet_of(here: Context, principal: Principal, decision_id: str) -> None:
    if principal.fleet is None:
        return
    with here.database.read() as conn:
        auth.check_fleet(principal, decisions.fleet_of(conn, decision_id))
