"""Whatever is sent, the answer is a refusal that can be read, never a fault of ours."""

import json
from typing import Any

import pytest
from fastapi import FastAPI

from controlplane.api import problems
from controlplane.domain import errors
from tests.api.control_plane import FLEET, ControlPlane
from tests.api.local_client import local_client

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"\xff\xfe\x00",
        b"[" * 50_000,
        b'{"name":' * 20_000,
        b'{"name": "a", "reason": "x", "n": ' + b"9" * 5_000 + b"}",
        b'{"name": 1e309, "reason": "x"}',
        b'{"name": NaN, "reason": -Infinity}',
        b'{"name": "\\ud800", "reason": "x"}',
        b'{"\\ud800": 1, "name": "a", "reason": "x"}',
        b'{"name": "a\\u0000b", "reason": "x"}',
        b'{"name": {"$gt": ""}, "reason": ["x"]}',
        b'{"name": true, "reason": false}',
        b'{"name": "a", "name": "B", "reason": "x"}',
        b"name=a&reason=x",
    ],
    ids=range(18),
)
def test_rubbish_is_refused_as_a_problem(sqlite_plane: ControlPlane, body: bytes) -> None:
    headers = {**sqlite_plane.admin, **JSON}

    answer = sqlite_plane.client.post("/v1/fleets", headers=headers, content=body)

    assert answer.status_code in {400, 422}, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert json.loads(answer.content)["detail"]


@pytest.mark.parametrize("content_type", ["text/plain", "application/xml", "", "application/jsonx"])
def test_a_form_of_a_web_page_changes_nothing(
    sqlite_plane: ControlPlane, content_type: str
) -> None:
    """A page elsewhere can post these kinds without asking us first."""
    headers = {**sqlite_plane.admin, "Content-Type": content_type}
    body = json.dumps({"name": FLEET, "reason": "x"}).encode()

    answer = sqlite_plane.client.post("/v1/fleets", headers=headers, content=body)

    assert answer.status_code == 422


def test_no_other_origin_is_allowed(sqlite_plane: ControlPlane) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}

    answer = sqlite_plane.client.request("OPTIONS", "/v1/fleets", headers=headers)

    assert answer.status_code == 405
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2fadmin",
        "a%00b",
        "a%0d%0aSet-Cookie:%20x=1",
        "A",
        "ä",
        "\uff05\u0032e",
        "a" * 64,
        "-a",
        "a;drop table fleets",
        "' or 1=1 --",
        "%ff",
    ],
)
@pytest.mark.parametrize("path", ["/v1/fleets/{}", "/v1/fleets/x/workers/{}", "/v1/policies/{}"])
def test_a_name_that_is_none_reaches_no_query(
    sqlite_plane: ControlPlane, path: str, name: str
) -> None:
    answer = sqlite_plane.client.get(path.format(name), headers=sqlite_plane.admin)

    assert answer.status_code in {404, 422}
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "name", ["", "Ä", "a" * 64, "a/b", "a\nb", "..", "\u202egnp", " a", "a ", 7, None]
)
def test_a_fleet_has_a_name_that_is_safe_to_show(sqlite_plane: ControlPlane, name: object) -> None:
    answer = sqlite_plane.post("/v1/fleets", name=name)

    assert (answer.status_code, answer.json()["key"]) == (422, "name")


def test_a_large_body_is_refused_unread(sqlite_plane: ControlPlane) -> None:
    headers = {**sqlite_plane.admin, **JSON}

    answer = sqlite_plane.client.post("/v1/fleets", headers=headers, content=bytes(2 << 20))

    assert answer.status_code == 413


def test_unicode_in_a_reason_comes_back_as_it_was(plane: ControlPlane) -> None:
    reason = "größer als 24 fps — 映像 🎥"

    plane.done("/v1/fleets", name=FLEET, reason=reason)

    assert plane.get("/v1/audit")["items"][0]["reason"] == reason


def test_a_long_value_is_cut_in_the_answer(sqlite_plane: ControlPlane) -> None:
    answer = sqlite_plane.post("/v1/fleets", name="x" * 100_000)

    assert answer.status_code == 422
    assert len(answer.content) < 2_000


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "TRACE"])
def test_methods_that_no_route_has_are_refused(sqlite_plane: ControlPlane, method: str) -> None:
    answer = sqlite_plane.client.request(method, "/v1/fleets", headers=sqlite_plane.admin)

    assert answer.status_code == 405
    assert answer.headers["content-type"] == "application/problem+json"


def _failing(error: Exception) -> FastAPI:
    app = FastAPI()
    problems.install(app)

    @app.get("/")
    def fail() -> None:
        raise error

    return app


def test_an_unexpected_error_tells_an_id_and_nothing_else(capsys: Any) -> None:
    """A traceback in an answer is a map of the inside."""
    with local_client(_failing(RuntimeError("password=hunter2 at /srv/secret"))) as client:
        answer = client.get("/")

    assert answer.status_code == 500
    assert "hunter2" not in answer.text
    assert answer.json()["error_id"] in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.NotFoundError("worker", "w-1"), 404),
        (errors.InvalidValueError("key", object(), allowed="words"), 422),
        (errors.ConflictError("not now"), 409),
        (errors.StaleVersionError("canary", "c-1", 3), 409),
        (problems.UnauthenticatedError("who?"), 401),
        (problems.ForbiddenError("no"), 403),
        (problems.UnsupportedError("no"), 415),
        (problems.MalformedError("no"), 400),
        (problems.TooLargeError("no"), 413),
    ],
)
def test_each_refusal_has_its_status(error: errors.DomainError, status: int) -> None:
    with local_client(_failing(error)) as client:
        answer = client.get("/")

    assert answer.status_code == answer.json()["status"] == status
    assert answer.json()["detail"] == str(error)


@pytest.mark.parametrize("value", [2**53, -(2**63), 1e400, "\ud800", {"a": object()}, "x" * 999])
def test_a_refused_value_can_always_be_shown(value: object) -> None:
    text = json.dumps(problems.shown(value), allow_nan=False)

    assert len(text.encode()) <= 3 * problems.MAX_SHOWN
