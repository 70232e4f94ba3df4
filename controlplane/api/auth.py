"""Who asks, and whether they may: `require(role)` stands on every route, a test sees to it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from fastapi import Depends, Request

from controlplane.api.context import Context, Here
from controlplane.api.problems import ForbiddenError, UnauthenticatedError
from controlplane.services import tokens
from controlplane.services.tokens import Principal

# A token is 46 characters; what is much longer is not one and is not hashed.
MAX_AUTHORIZATION = 256


class Role(StrEnum):
    """What a token may do; each person's role includes those before it, `worker` stands alone."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"


_INCLUDED: dict[Role, frozenset[str]] = {
    Role.VIEWER: frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMIN}),
    Role.OPERATOR: frozenset({Role.OPERATOR, Role.ADMIN}),
    Role.ADMIN: frozenset({Role.ADMIN}),
    Role.WORKER: frozenset({Role.WORKER}),
}


@dataclass(frozen=True, slots=True)
class Require:
    """A dependency that answers who asks, or refuses."""

    role: Role

    def __call__(self, request: Request, here: Here) -> Principal:
        """The principal.

        Raises:
            UnauthenticatedError: no token, or none that is known.
            ForbiddenError: its role, fleet or worker does not allow this.
        """
        return self.allowed(_principal(here, request.headers.getlist("authorization")), request)

    def allowed(self, principal: Principal, request: Request) -> Principal:
        """`principal`, who may ask for what the path of `request` names. Raises: ForbiddenError."""
        if principal.role not in _INCLUDED[self.role]:
            raise ForbiddenError(f"this needs the role {self.role}; the token is {principal.role}")
        check_fleet(principal, request.path_params.get("fleet"))
        check_worker(principal, request.path_params.get("worker"))
        return principal


def require(role: Role) -> Require:
    """A dependency for routes that need `role`."""
    return Require(role)


Viewer = Annotated[Principal, Depends(require(Role.VIEWER))]
Operator = Annotated[Principal, Depends(require(Role.OPERATOR))]
Admin = Annotated[Principal, Depends(require(Role.ADMIN))]
Worker = Annotated[Principal, Depends(require(Role.WORKER))]


def check_fleet(principal: Principal, fleet: str | None) -> None:
    """Refuse a token that is bound to another fleet. Raises: ForbiddenError."""
    if fleet is not None and principal.fleet not in (None, fleet):
        raise ForbiddenError(f"the token is for fleet {principal.fleet} only")


def check_worker(principal: Principal, worker: str | None) -> None:
    """Refuse a worker's token that is bound to another worker. Raises: ForbiddenError."""
    if worker is not None and principal.worker not in (None, worker):
        raise ForbiddenError(f"the token is for worker {principal.worker} only")


def _principal(here: Context, headers: list[str]) -> Principal:
    if len(headers) != 1 or len(headers[0]) > MAX_AUTHORIZATION:
        raise UnauthenticatedError("send one header `Authorization: Bearer TOKEN`")
    scheme, _, token = headers[0].partition(" ")
    if scheme.lower() != "bearer":
        raise UnauthenticatedError("send one header `Authorization: Bearer TOKEN`")
    with here.database.read() as conn:
        principal = tokens.principal(conn, token=token.strip(), now=here.clock.now())
    if principal is None:
        raise UnauthenticatedError("the token is not known, has expired or was revoked")
    return principal
