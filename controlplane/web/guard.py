"""Who looks at a page, and how a page refuses: with a page, or with the way to log in."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse
from fastapi.routing import APIRoute

from controlplane.api import problems
from controlplane.api.auth import Require, Role
from controlplane.api.context import Context, Here
from controlplane.api.problems import ForbiddenError, UnauthenticatedError
from controlplane.domain import errors
from controlplane.services import web_sessions
from controlplane.services.tokens import Principal
from controlplane.web import rendering

COOKIE = "steadyframe_session"
LOGIN = "/login"
SEE_OTHER = 303
UNPROCESSABLE = 422
# What a session is named by is 43 characters; what is much longer is not one and is not hashed.
_MAX_SECRET = 128


@dataclass(frozen=True, slots=True)
class RequireSession(Require):
    """A dependency that answers whose session the cookie names, or sends them to log in."""

    def __call__(self, request: Request, here: Here) -> Principal:
        """The principal.

        Raises:
            UnauthenticatedError: no session, or one that is over.
            ForbiddenError: its role or fleet does not allow this.
        """
        return self.allowed(_principal(here, secret_of(request)), request)


Viewer = Annotated[Principal, Depends(RequireSession(Role.VIEWER))]


class PageRoute(APIRoute):
    """A route whose refusals are pages, too."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its expected refusals as pages."""
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except UnauthenticatedError:
                return _to_login(request)
            except errors.DomainError as error:
                return rendering.refusal(request, problems.status_of(error), str(error))
            except RequestValidationError:
                return rendering.refusal(
                    request, UNPROCESSABLE, "the address of this page is not one of ours"
                )

        return handled


def secret_of(request: Request) -> str:
    """What the cookie of the session holds, or nothing."""
    return request.cookies.get(COOKIE, "")[:_MAX_SECRET]


def is_for_image(request: Request) -> bool:
    """Whether the answer is to be drawn, so that nobody would read a page."""
    return request.headers.get("accept", "").startswith("image/")


def check_origin(request: Request) -> None:
    """Refuse a form that another site sent.

    Browsers name the origin with every POST; a client that names none is not one and has the API.

    Raises: ForbiddenError.
    """
    host = request.headers.get("host")
    # Behind a proxy we do not see whether it was https; the host tells sites apart all the same.
    if request.headers.get("origin") not in (f"http://{host}", f"https://{host}"):
        raise ForbiddenError("the form was not sent from a page of this server")


def _principal(here: Context, secret: str) -> Principal:
    if secret:
        with here.database.read() as conn:
            principal = web_sessions.principal(conn, secret=secret, now=here.clock.now())
        if principal is not None:
            return principal
    raise UnauthenticatedError("log in first")


def _to_login(request: Request) -> Response:
    accepted = request.headers.get("accept", "")
    if is_for_image(request) or accepted.startswith("text/event-stream"):
        return Response(status_code=401)  # nobody reads a form there
    return RedirectResponse(f"{LOGIN}?next={quote(request.url.path)}", status_code=SEE_OTHER)
