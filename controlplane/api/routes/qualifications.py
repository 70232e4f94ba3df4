"""The ledger of qualifications: read by everyone, attested and revoked by operators."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, paging, views
from controlplane.api.changes import ByOperator
from controlplane.api.context import Context, Here
from controlplane.api.problems import ForbiddenError
from controlplane.api.schemas import (
    DEFAULT_LIMIT,
    AttestationRequest,
    Because,
    Limit,
    NamePath,
    NameQuery,
    NumberPath,
    SequenceCursor,
)
from controlplane.services import attestation, ledger
from controlplane.services.attestation import Attestation
from controlplane.services.tokens import Principal

router = APIRouter(prefix="/v1", tags=["qualifications"])
CREATED = 201


@router.get("/qualifications")
def list_qualifications(
    here: Here,
    principal: auth.Viewer,
    fleet: NameQuery = None,
    cursor: SequenceCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Records that count now, newest first; of a fleet: for what its workers run on."""
    auth.check_fleet(principal, fleet)
    with here.database.read() as conn:
        found = ledger.list_page(
            conn, fleet=fleet or principal.fleet, after=cursor, limit=limit + 1
        )
    return paging.page(found, limit=limit, key=lambda one: str(one["number"]))


@router.get("/qualifications/{number}")
def show_qualification(number: NumberPath, here: Here, principal: auth.Viewer) -> Any:
    """One record, and the history of its variant on that hardware and stack."""
    with here.database.read() as conn:
        auth.check_fleet(principal, ledger.fleet_of(conn, number))
        return views.plain(ledger.show(conn, number, fleet=principal.fleet))


@router.post("/qualifications/{number}/revoke")
def revoke_qualification(number: NumberPath, body: Because, change: ByOperator) -> JSONResponse:
    """Take it back: where it is promoted, workers go to their fallback."""
    _check_reach(change.here, change.principal, number)
    return change.make(body, lambda conn, act: attestation.revoke(conn, number, act=act))


@router.post("/fleets/{fleet}/attestations", status_code=CREATED)
def attest(fleet: NamePath, body: AttestationRequest, change: ByOperator) -> JSONResponse:
    """Say, without a canary, that the fleet does well with a variant that it runs."""
    wanted = Attestation(
        fleet=fleet,
        flag=body.flag,
        variant=body.variant,
        hardware=body.hardware,
        stack=body.stack,
    )
    return change.make(
        body, lambda conn, act: attestation.attest(conn, wanted, act=act), status=CREATED
    )


def _check_reach(here: Context, principal: Principal, number: int) -> None:
    """Refuse a token of one fleet for what holds in others, too. Raises: ForbiddenError."""
    if principal.fleet is None:
        return
    with here.database.read() as conn:
        fleet = ledger.fleet_of(conn, number)
    auth.check_fleet(principal, fleet)
    if fleet is None:
        raise ForbiddenError(
            f"record {number} holds in every fleet, and the token is for {principal.fleet} only"
        )
