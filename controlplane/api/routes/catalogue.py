"""Flags and policies."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from controlplane.api import auth, views
from controlplane.api.changes import ByOperator
from controlplane.api.context import Here
from controlplane.api.schemas import NamePath, PolicyDraft, PolicyUpload
from controlplane.services import flags, policies

router = APIRouter(prefix="/v1", tags=["policies"])


@router.get("/flags")
def list_flags(here: Here, _: auth.Viewer) -> Any:
    """The catalogue of kernel flags."""
    with here.database.read() as conn:
        return views.whole(flags.list_all(conn))


@router.get("/policies")
def list_policies(here: Here, _: auth.Viewer) -> Any:
    """The newest policy of each name."""
    with here.database.read() as conn:
        return views.whole(policies.list_latest(conn))


@router.get("/policies/{name}")
def show_policy(name: NamePath, here: Here, _: auth.Viewer) -> Any:
    """One policy, its document, and what it asks in words."""
    with here.database.read() as conn:
        return views.plain(policies.show(conn, name))


@router.post("/policies", status_code=201)
def add_policy(body: PolicyUpload, change: ByOperator) -> JSONResponse:
    """Keep a policy; canaries that run go on under the one they started with."""
    return change.make(
        body, lambda conn, act: policies.add(conn, body.document, act=act), status=201
    )


@router.post("/policies/lint")
def lint_policy(body: PolicyDraft, here: Here, _: auth.Viewer) -> Any:
    """Check a policy and say what it asks; nothing is kept."""
    with here.database.read() as conn:
        return views.plain(policies.lint(conn, body.document))
