"""No request reaches a route with a foreign host or a body beyond the bound."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from fastapi import FastAPI, Request

from controlplane.api import problems
from controlplane.api.limits import BodyLimit, HostAllowList
from tests.api.local_client import LocalClient, local_client


def _app(*allowed: str) -> FastAPI:
    app = FastAPI()
    problems.install(app)
    app.add_middleware(BodyLimit, default=100, by_prefix={"/large": 1000})
    app.add_middleware(HostAllowList, allowed=allowed)

    @app.post("/x")
    @app.post("/large")
    async def length(request: Request) -> int:
        return len(await request.body())

    return app


@pytest.fixture
def client() -> Iterator[LocalClient]:
    with local_client(_app()) as client:
        yield client


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io"])
def test_a_rebound_name_is_not_answered(client: LocalClient, host: str) -> None:
    """A web page may point its own name at loopback and let the visitor's browser call us."""
    answer = client.post("/x", headers={"Host": host})

    assert answer.status_code == 421
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("host", ["localhost:8424", "127.0.0.1", "[::1]:8424", "LOCALHOST"])
def test_loopback_is_answered(client: LocalClient, host: str) -> None:
    assert client.post("/x", headers={"Host": host}).status_code == 200


def test_a_configured_name_is_answered() -> None:
    with local_client(_app("Control.example"), base_url="http://control.example") as client:
        assert client.post("/x").status_code == 200


def test_two_hosts_are_one_too_many(client: LocalClient) -> None:
    headers = [("Host", "localhost"), ("Host", "evil.example")]

    assert client.post("/x", headers=headers).status_code == 421


def test_a_body_announced_as_too_large_is_not_read(client: LocalClient) -> None:
    async def never() -> AsyncIterator[bytes]:
        pytest.fail("the body was read")
        yield b""

    headers = {"Content-Length": str(50 << 20)}

    assert client.post("/x", content=never(), headers=headers).status_code == 413


def test_a_body_without_length_is_counted_as_it_comes(client: LocalClient) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b"x" * 60

    assert client.post("/x", content=chunks()).status_code == 413


def test_a_path_may_have_a_bound_of_its_own(client: LocalClient) -> None:
    assert client.post("/large", content=b"x" * 999).json() == 999
    assert client.post("/large", content=b"x" * 1001).status_code == 413


@pytest.mark.parametrize("length", ["-1", "1e9", "0x10", "9" * 400, "\u0661"])
def test_a_length_that_is_no_number_is_refused(client: LocalClient, length: str) -> None:
    headers: Any = {"Content-Length": length.encode()}

    assert client.post("/x", content=b"", headers=headers).status_code in {400, 413}
