"""What every request must satisfy before a route sees it: a host we answer to, a bounded body.

Pure ASGI, so that a body is counted as it arrives and one announced as too large is never read.
"""

import json
from collections.abc import Collection, Mapping
from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# A name that a browser can be made to resolve to loopback is not among these (DNS rebinding).
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
ANY_HOST = "*"
_SAFE_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)


class HostAllowList:
    """Answers only to known host names, so that a rebound DNS name reaches nothing."""

    def __init__(self, app: ASGIApp, *, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = LOOPBACK | {name.lower() for name in allowed}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, or answer 421."""
        if scope["type"] != "http" or self._is_allowed(Headers(scope=scope)):
            await self._app(scope, receive, send)
            return
        await _refuse(
            send,
            HTTPStatus.MISDIRECTED_REQUEST,
            "this server does not answer to that Host; name it in STEADYFRAME_ALLOWED_HOSTS",
        )

    def _is_allowed(self, headers: Headers) -> bool:
        hosts = headers.getlist("host")
        if ANY_HOST in self._allowed:
            return True
        return len(hosts) == 1 and _host_name(hosts[0]) in self._allowed


class BodyLimit:
    """Bounds bodies: by path prefix, else by the default."""

    def __init__(self, app: ASGIApp, *, default: int, by_prefix: Mapping[str, int]) -> None:
        self._app = app
        self._default = default
        self._by_prefix = dict(by_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on with a counting `receive`, or answer 413 or 400 unread."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit(scope["path"])
        announced = Headers(scope=scope).get("content-length", "0")
        if not (announced.isascii() and announced.isdigit()):
            await _refuse(send, HTTPStatus.BAD_REQUEST, "content-length is not a number")
        elif len(announced) > len(str(limit)) + 1 or int(announced) > limit:
            await _refuse(send, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        else:
            await self._app(scope, _counted(receive, limit), send)

    def _limit(self, path: str) -> int:
        for prefix, limit in self._by_prefix.items():
            if path.startswith(prefix):
                return limit
        return self._default


class SafeHeaders:
    """Answers hold the state of a fleet: no cache keeps them, no browser guesses their type."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and add the headers that the answer does not set by itself."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                known = {name.lower() for name, _ in message["headers"]}
                added = [(name, value) for name, value in _SAFE_HEADERS if name not in known]
                message["headers"] = [*message["headers"], *added]
            await send(message)

        await self._app(scope, receive, with_headers)


def _counted(receive: Receive, limit: int) -> Receive:
    num_bytes = 0

    async def counted() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > limit:
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, _too_large(limit))
        return message

    return counted


def _too_large(limit: int) -> str:
    return f"the body is larger than {limit} bytes: send less at a time"


def _host_name(header: str) -> str:
    name, separator, port = header.rpartition(":")
    return (name if separator and port.isdigit() else header).lower()


async def _refuse(send: Send, status: HTTPStatus, detail: str) -> None:
    problem = {"type": "about:blank", "title": status.phrase, "status": status, "detail": detail}
    body = json.dumps(problem).encode()
    headers = [
        (b"content-type", b"application/problem+json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),  # what is left of the body is not read
    ]
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": body})
