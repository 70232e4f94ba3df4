"""Sessions of the past, taken in for reports."""

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth
from controlplane.api.changes import ByOperator
from controlplane.api.schemas import SessionImport
from controlplane.services import imports
from controlplane.services.imports import Table

PREFIX = "/v1/imports"
router = APIRouter(prefix=PREFIX, tags=["reports"])


@router.post("/sessions", status_code=201)
def import_sessions(body: SessionImport, change: ByOperator) -> JSONResponse:
    """Keep every session of a table, or none; what is known stays as it is."""
    auth.check_fleet(change.principal, body.fleet)
    table = Table(columns=body.columns, lines=body.lines, rows=body.rows)
    # Read before the transaction that writes: it holds up whoever writes meanwhile.
    with change.here.database.read() as conn:
        sessions = imports.parsed(conn, table, now=change.here.clock.now())
    return change.make(
        body,
        lambda conn, act: imports.take(
            conn, sessions, fleet=body.fleet, is_sample=body.is_sample, act=act
        ),
        status=201,
    )
