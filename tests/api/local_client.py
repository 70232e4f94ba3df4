"""A plain client of an ASGI application in this thread: no socket, no server, real lifespan."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import Any

import httpx
from fastapi import FastAPI


class LocalClient:
    """Sends requests to `app`; the event loop runs only while one is being answered."""

    def __init__(self, app: FastAPI, runner: asyncio.Runner, *, base_url: str) -> None:
        self.app = app
        self._runner = runner
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._http = httpx.AsyncClient(transport=transport, base_url=base_url)

    def request(self, method: str, path: str, **kwargs: Any) -> httpx.Response:
        """The answer."""
        return self._runner.run(self._http.request(method, path, **kwargs))

    def get(self, path: str, **kwargs: Any) -> httpx.Response:
        """The answer to a GET."""
        return self.request("GET", path, **kwargs)

    def post(self, path: str, **kwargs: Any) -> httpx.Response:
        """The answer to a POST."""
        return self.request("POST", path, **kwargs)

    def close(self) -> None:
        """Give back what it holds."""
        self._runner.run(self._http.aclose())


@contextmanager
def local_client(app: FastAPI, *, base_url: str = "http://localhost") -> Iterator[LocalClient]:
    """A client of `app` while its lifespan runs."""
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        runner.run(stack.enter_async_context(app.router.lifespan_context(app)))
        client = LocalClient(app, runner, base_url=base_url)
        try:
            yield client
        finally:
            client.close()
            runner.run(stack.aclose())
