"""Refusals as `application/problem+json` (RFC 9457): the one table from domain error to status.

What was not expected is answered without internals, under an id that the log carries too.
"""

import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from controlplane.domain import errors
from controlplane.domain.imported import BadRow, BadRowsError

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
# A refused value is shown back up to here: enough to recognise it.
MAX_SHOWN = 200


class UnauthenticatedError(errors.DomainError):
    """No token, or none that is known."""


class ForbiddenError(errors.DomainError):
    """The token is known, but may not do this."""


class UnsupportedError(errors.DomainError):
    """The body is of a kind that this route does not take."""


class MalformedError(errors.DomainError):
    """The body is not what its content type says."""


class TooLargeError(errors.DomainError):
    """The body is larger than this route takes."""


class BusyError(errors.DomainError):
    """It could not be done just now; the same request may be sent again."""


# First match wins, so the special comes before the general.
STATUSES: Sequence[tuple[type[errors.DomainError], HTTPStatus]] = (
    (UnauthenticatedError, HTTPStatus.UNAUTHORIZED),
    (ForbiddenError, HTTPStatus.FORBIDDEN),
    (UnsupportedError, HTTPStatus.UNSUPPORTED_MEDIA_TYPE),
    (MalformedError, HTTPStatus.BAD_REQUEST),
    (TooLargeError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
    (BusyError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.UnavailableError, HTTPStatus.SERVICE_UNAVAILABLE),
    (errors.NotFoundError, HTTPStatus.NOT_FOUND),
    (errors.InvalidValueError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (BadRowsError, HTTPStatus.UNPROCESSABLE_ENTITY),
    (errors.ConflictError, HTTPStatus.CONFLICT),
    (errors.DomainError, HTTPStatus.CONFLICT),
)
_HEADERS = {
    HTTPStatus.UNAUTHORIZED: {"WWW-Authenticate": "Bearer"},
    HTTPStatus.SERVICE_UNAVAILABLE: {"Retry-After": "1"},
}


def install(app: FastAPI) -> None:
    """Make `app` answer every error as a problem."""
    app.add_exception_handler(errors.DomainError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def status_of(error: errors.DomainError) -> HTTPStatus:
    """The status that tells a client what kind of refusal this is."""
    return next(status for kind, status in STATUSES if isinstance(error, kind))


def _refused(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, errors.DomainError), "registered for DomainError only"
    status = status_of(error)
    if isinstance(error, errors.UnavailableError):  # somebody has to make room, or start it again
        log.error("store_unavailable", reason=str(error))
    members: dict[str, object] = {}
    if isinstance(error, errors.InvalidValueError):
        members = {
            "key": shown(error.key),
            "value": shown(error.value),
            "allowed": _clean(error.allowed),
        }
    elif isinstance(error, BadRowsError):
        members = {"num_bad": error.num_bad, "bad": [_bad_row(row) for row in error.shown]}
    elif isinstance(error, errors.NotFoundError):
        members = {"kind": error.kind, "name": shown(error.name)}
    return _problem(status, _clean(str(error)), members)


def _invalid(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError), "registered for RequestValidationError only"
    found = [_member(one) for one in error.errors()[:20]]
    if any(one.get("type") == "json_invalid" for one in error.errors()):
        return _problem(HTTPStatus.BAD_REQUEST, "the body is not JSON", {})
    first = found[0]
    return _problem(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"{first['key']}: {first['value']!r} is not allowed; allowed: {first['allowed']}",
        {**first, "errors": found},
    )


def _http(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException), "registered for HTTPException only"
    return _problem(HTTPStatus(error.status_code), error.detail, {}, headers=error.headers)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    error_id = secrets.token_hex(8)
    log.error(
        "request_failed",
        error_id=error_id,
        method=request.method,
        route=getattr(request.scope.get("route"), "path", "unknown"),
        exc_info=error,
    )
    sentence = f"this is a fault of ours; the log has it under {error_id}"
    return _problem(HTTPStatus.INTERNAL_SERVER_ERROR, sentence, {"error_id": error_id})


def shown(value: object) -> object:
    """`value` as a refusal shows it back: short, and always writable as JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 2**53:  # what every JSON reader keeps exact
        return value
    text = value if isinstance(value, str) else repr(value)
    return _clean(text)[:MAX_SHOWN]


def _bad_row(row: BadRow) -> dict[str, object]:
    return {
        "line": row.line,
        "key": row.error.key,
        "value": shown(row.error.value),
        "allowed": _clean(row.error.allowed),
    }


def _member(error: Mapping[str, Any]) -> dict[str, object]:
    location = [str(part) for part in error["loc"] if part not in ("body", "query", "path")]
    context = error.get("ctx") or {}
    allowed = str(context.get("expected") or error["msg"])
    return {
        "key": ".".join(location)[:MAX_SHOWN] or "body",
        "value": shown(error.get("input")),
        "allowed": _clean(allowed)[: 2 * MAX_SHOWN],
    }


def _problem(
    status: HTTPStatus,
    detail: str,
    members: Mapping[str, object],
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    content = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": detail,
        **members,
    }
    return JSONResponse(
        content,
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**_HEADERS.get(status, {}), **(headers or {})},
    )


def _clean(text: str) -> str:
    """`text` without what UTF-8 cannot carry: lone surrogates, which JSON's escapes can."""
    return text.encode("utf-8", "replace").decode()
