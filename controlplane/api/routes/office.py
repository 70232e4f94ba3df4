"""What belongs to no fleet: sessions, the audit log, tokens."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, paging, views
from controlplane.api.changes import ByAdmin
from controlplane.api.context import Here
from controlplane.api.problems import ForbiddenError
from controlplane.api.schemas import (
    DEFAULT_LIMIT,
    Because,
    IdPath,
    Limit,
    NameQuery,
    SequenceCursor,
    SessionCursor,
    TokenRequest,
)
from controlplane.services import reports, tokens

router = APIRouter(prefix="/v1", tags=["office"])


@router.get("/sessions")
def list_sessions(
    here: Here,
    principal: auth.Viewer,
    fleet: NameQuery = None,
    cursor: SessionCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Ended sessions, newest week first."""
    auth.check_fleet(principal, fleet)
    week, _, session = (cursor or "").partition(".")
    with here.database.read() as conn:
        found = reports.sessions(
            conn,
            fleet=fleet or principal.fleet,
            after=(week, session) if cursor else None,
            limit=limit + 1,
        )
    return paging.page(found, limit=limit, key=lambda one: f"{one['week']}.{one['id']}")


@router.get("/audit")
def list_audit(
    here: Here,
    principal: auth.Viewer,
    cursor: SequenceCursor = None,
    limit: Limit = DEFAULT_LIMIT,
) -> Any:
    """Who did what and why, newest first, over every fleet."""
    if principal.fleet is not None:
        raise ForbiddenError("the audit log is of every fleet; the token is for one")
    with here.database.read() as conn:
        found = reports.audit(conn, after=cursor, limit=limit + 1)
    return paging.page(found, limit=limit, key=lambda one: one.sequence)


@router.post("/tokens", status_code=201)
def create_token(body: TokenRequest, change: ByAdmin) -> JSONResponse:
    """Make a token; this answer is the only time it is shown."""
    grant = tokens.Grant(role=body.role, fleet=body.fleet, worker=body.worker)
    return change.make(
        body,
        lambda conn, act: tokens.create(conn, grant, new_secret=change.here.new_secret, act=act),
        status=201,
    )


@router.get("/tokens")
def list_tokens(here: Here, _: auth.Admin) -> Any:
    """Every token, without what it is."""
    with here.database.read() as conn:
        return views.whole(tokens.list_all(conn))


@router.post("/tokens/{token_id}/revoke")
def revoke_token(token_id: IdPath, body: Because, change: ByAdmin) -> JSONResponse:
    """Refuse a token from now on."""
    return change.make(body, lambda conn, act: tokens.revoke(conn, token_id, act=act))
