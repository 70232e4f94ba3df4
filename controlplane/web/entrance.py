"""Logging in and out, and the files that the form needs; open to everybody.

A token comes in by POST only and never goes into an address, a page or the cookie.
"""

import re
from typing import Annotated
from urllib.parse import parse_qs

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import RedirectResponse
from starlette.concurrency import run_in_threadpool

from controlplane.api.context import Context, Here
from controlplane.services import web_sessions
from controlplane.web import guard, rendering, static

router = APIRouter(tags=["pages"], include_in_schema=False, route_class=guard.PageRoute)
HOME = "/"
UNAUTHORIZED = 401
# A path of ours: no host, no query, and no second slash that a browser would read as a host.
_OWN_PATH = re.compile(r"/(?:[A-Za-z0-9_.~-]+(?:/[A-Za-z0-9_.~-]+)*)?")
_MAX_TOKEN = 256
_FOR_GOOD = "public, max-age=31536000, immutable"
AssetName = Annotated[str, Path(pattern=r"^[a-z0-9.-]{1,40}$")]


@router.get(guard.LOGIN)
def login_form(request: Request) -> Response:
    """The form."""
    return _form(request, wanted=request.query_params.get("next", HOME))


@router.post(guard.LOGIN)
async def log_in(request: Request, here: Here) -> Response:
    """Exchange a token for a session."""
    guard.check_origin(request)
    form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
    token, wanted = form.get("token", [""])[0].strip(), form.get("next", [HOME])[0]
    secret = await run_in_threadpool(_begin, here, token)
    if secret is None:
        return _form(
            request, wanted=wanted, why="that token is not known, or is over, or is a worker's"
        )
    answer = RedirectResponse(_own(wanted), status_code=guard.SEE_OTHER)
    answer.set_cookie(
        guard.COOKIE,
        secret,
        max_age=int(web_sessions.LASTS.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https" or here.settings.is_behind_https,
    )
    return answer


@router.post("/logout")
def log_out(request: Request, here: Here) -> Response:
    """End the session, here and in the browser."""
    guard.check_origin(request)
    with here.database.write() as conn:
        web_sessions.end(conn, secret=guard.secret_of(request))
    answer = RedirectResponse(guard.LOGIN, status_code=guard.SEE_OTHER)
    answer.delete_cookie(guard.COOKIE, httponly=True, samesite="strict")
    return answer


@router.get("/static/{name}")
def asset(name: AssetName, request: Request) -> Response:
    """One of our files."""
    found = static.get(name)
    headers = {**rendering.HEADERS, "Cache-Control": _FOR_GOOD, "Vary": "Accept-Encoding"}
    if not rendering.takes_gzip(request):
        return Response(found.body, media_type=found.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(static.packed(name), media_type=found.media_type, headers=headers)


def _begin(here: Context, token: str) -> str | None:
    if not token or len(token) > _MAX_TOKEN:
        return None
    with here.database.write() as conn:
        return web_sessions.begin(
            conn, token=token, new_secret=here.new_secret, now=here.clock.now()
        )


def _form(request: Request, *, wanted: str, why: str = "") -> Response:
    status = UNAUTHORIZED if why else 200
    return rendering.page(request, "login.html", status=status, next=_own(wanted), why=why)


def _own(path: str) -> str:
    return path if _OWN_PATH.fullmatch(path) else HOME
