"""Every route asks who it is; a token opens what it is for and nothing beside it."""

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from controlplane import app, telemetry
from controlplane.api.auth import Require
from controlplane.web.guard import RequireSession
from tests.api.control_plane import FLEET, ControlPlane, bearer, registration

# The form to log in by and what it looks like; `entrance` says why nothing else is there.
OPEN = {"/livez", "/readyz", "/login", "/logout", "/static/{name}"}


def _requirements(dependant: Dependant) -> Iterator[Require]:
    if isinstance(dependant.call, Require):
        yield dependant.call
    for inner in dependant.dependencies:
        yield from _requirements(inner)


def _routes() -> list[APIRoute]:
    return [
        route for router in app.ROUTERS for route in router.routes if isinstance(route, APIRoute)
    ]


@pytest.mark.parametrize("route", _routes(), ids=lambda route: f"{route.name}")
def test_every_route_requires_a_role(route: APIRoute) -> None:
    """A route that was forgotten would be open to whoever reaches the port."""
    roles = {one.role for one in _requirements(route.dependant)}

    if route.path in OPEN:
        assert not roles
    else:
        assert len(roles) == 1


def test_the_application_has_no_route_beside_those(sqlite_plane: ControlPlane) -> None:
    """Mounted applications and default pages would pass the walk above unseen."""
    described = set(sqlite_plane.client.get("/openapi.json").json()["paths"])

    assert described == {route.path for route in _routes() if route.include_in_schema}
    for page in ("/docs", "/redoc", "/static", "/static/", "/static/../app.py"):
        assert sqlite_plane.client.get(page).status_code == 404


@pytest.mark.parametrize("route", [one for one in _routes() if not one.include_in_schema])
def test_a_page_takes_a_session_and_no_token(route: APIRoute) -> None:
    """A page that took the token of a header would be one that scripts come to lean on."""
    kinds = {type(one) for one in _requirements(route.dependant)}

    assert kinds == (set() if route.path in OPEN else {RequireSession})


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer sf_wrong"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer " + "x" * 100_000},
        {"Authorization": b"Bearer \xff\xfe"},
        {"Cookie": "token=sf_wrong"},
    ],
)
def test_without_a_known_token_nothing_is_told(
    sqlite_plane: ControlPlane, headers: dict[str, Any]
) -> None:
    answer = sqlite_plane.client.get("/v1/fleets", headers=headers)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["content-type"] == "application/problem+json"


def test_two_tokens_are_refused_whichever_is_good(sqlite_plane: ControlPlane) -> None:
    """A proxy in front and we must not read two different ones."""
    good = sqlite_plane.admin["Authorization"]
    headers = [("Authorization", good), ("Authorization", "Bearer sf_wrong")]

    assert sqlite_plane.client.request("GET", "/v1/fleets", headers=headers).status_code == 401


def test_a_viewer_reads_and_changes_nothing(plane: ControlPlane) -> None:
    plane.fleet()
    token = plane.token("viewer")

    assert plane.get("/v1/fleets", token=token)["items"]
    refused = plane.post(f"/v1/fleets/{FLEET}/stop-the-line", token=token)
    assert refused.status_code == 403
    assert "operator" in refused.json()["detail"]


def test_an_operator_makes_no_tokens(sqlite_plane: ControlPlane) -> None:
    token = sqlite_plane.token("operator")

    assert sqlite_plane.post("/v1/tokens", token=token, role="admin").status_code == 403


def test_a_workers_token_reads_nothing_of_the_operators(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1")
    headers = bearer(sqlite_plane.worker_token("w-1"))

    for path in ("/v1/fleets", "/v1/tokens", f"/v1/fleets/{FLEET}/workers/w-1", "/v1/audit"):
        assert sqlite_plane.client.get(path, headers=headers).status_code == 403


def test_an_admin_is_no_worker(sqlite_plane: ControlPlane) -> None:
    """What a worker says is evidence; a person must not be able to say it."""
    sqlite_plane.fleet("w-1")
    path = f"/v1/fleets/{FLEET}/workers/w-1/registration"

    answer = sqlite_plane.client.post(path, headers=sqlite_plane.admin, json=registration("w-1"))

    assert answer.status_code == 403


def test_a_worker_speaks_only_for_itself(plane: ControlPlane) -> None:
    """Two workers with each other's token: a stolen one must not spoil the whole fleet."""
    plane.fleet("w-1", "w-2")

    for path, body in (
        ("registration", registration("w-2", incarnation="stolen")),
        ("trips", {"incarnation": "life-of-w-2"}),
        ("effective", {}),
    ):
        assert plane.as_worker("w-2", path, by="w-1", **body).status_code == 403


def test_a_token_of_one_fleet_opens_no_other(plane: ControlPlane) -> None:
    plane.fleet()
    plane.done("/v1/fleets", name="other")
    token = plane.token("operator", fleet="other")

    assert [one["name"] for one in plane.get("/v1/fleets", token=token)["items"]] == ["other"]
    for path in (f"/v1/fleets/{FLEET}", f"/v1/canaries?fleet={FLEET}", "/v1/audit"):
        assert plane.client.get(path, headers=bearer(token)).status_code == 403
    assert plane.post("/v1/fleets", token=token, name="third").status_code == 403


def test_a_revoked_token_is_refused_at_once(plane: ControlPlane) -> None:
    made = plane.done("/v1/tokens", role="viewer")
    plane.done(f"/v1/tokens/{made['id']}/revoke")

    answer = plane.client.get("/v1/fleets", headers=bearer(made["token"]))

    assert answer.status_code == 401


def test_a_token_is_shown_once_and_kept_as_a_hash(plane: ControlPlane) -> None:
    """Who reads the database or a list of tokens must not be able to use one."""
    made = plane.done("/v1/tokens", role="viewer", key="once")

    listed = plane.client.get("/v1/tokens", headers=plane.admin).text
    repeated = plane.done("/v1/tokens", role="viewer", key="once")
    with plane.parts.context.database.read() as conn:
        rows = conn.exec_driver_sql("select * from api_tokens").all()
        keys = conn.exec_driver_sql("select * from idempotency_keys").all()

    assert made["token"] not in listed + str(rows) + str(keys)
    assert "token" not in repeated
    assert telemetry.redacted(made["token"]) != made["token"]


@pytest.mark.parametrize(
    "grant",
    [
        {"role": "worker"},
        {"role": "viewer", "fleet": FLEET, "worker": "w-1"},
        {"role": "admin", "fleet": FLEET},
        {"role": "root"},
    ],
)
def test_a_grant_that_makes_no_sense_is_refused(
    sqlite_plane: ControlPlane, grant: dict[str, str]
) -> None:
    sqlite_plane.fleet()

    assert sqlite_plane.post("/v1/tokens", **grant).status_code == 422


def test_the_first_admin_token_is_the_owners_alone(sqlite_plane: ControlPlane) -> None:
    path = sqlite_plane.state_dir / app.ADMIN_TOKEN_FILE

    assert path.stat().st_mode & 0o777 == 0o600
    assert sqlite_plane.state_dir.stat().st_mode & 0o777 == 0o700
