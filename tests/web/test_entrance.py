"""Logging in and out: who gets a session, what the cookie is, and when it is over."""

import pytest

from controlplane.services import web_sessions
from tests.api.control_plane import FLEET, ControlPlane
from tests.web import visitor
from tests.web.visitor import ORIGIN


def test_a_page_without_a_session_leads_to_the_form_and_back(sqlite_plane: ControlPlane) -> None:
    answer = sqlite_plane.client.get("/canaries")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/login?next=/canaries"

    form = sqlite_plane.client.get(answer.headers["location"])
    assert 'name="next" value="/canaries"' in form.text
    token = sqlite_plane.token("viewer")
    assert (
        visitor.log_in(sqlite_plane, token, wanted="/canaries").headers["location"] == "/canaries"
    )


def test_the_cookie_is_no_token_and_out_of_reach_of_scripts_and_other_sites(
    plane: ControlPlane,
) -> None:
    token = plane.token("viewer")
    cookie = visitor.log_in(plane, token).headers["set-cookie"]

    assert token not in cookie
    for attribute in ("HttpOnly", "SameSite=strict", "Max-Age=43200", "Path=/"):
        assert attribute in cookie
    assert "Secure" not in cookie  # plain http on loopback
    with plane.parts.context.database.read() as conn:
        rows = str(conn.exec_driver_sql("select * from web_sessions").all())
    assert cookie.partition("=")[2].partition(";")[0] not in rows


def test_a_bad_token_gets_the_form_again_and_is_not_shown_back(sqlite_plane: ControlPlane) -> None:
    answer = visitor.log_in(sqlite_plane, "sf_wrong")

    assert answer.status_code == 401
    assert "not known" in answer.text
    assert "sf_wrong" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_workers_token_opens_no_page(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1")

    assert visitor.log_in(sqlite_plane, sqlite_plane.worker_token("w-1")).status_code == 401


@pytest.mark.parametrize("path", ["/login", "/logout"])
@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "null"}, {"Origin": "http://evil.example"}, {"Origin": "http://["}]
)
def test_a_form_of_another_site_is_refused(
    sqlite_plane: ControlPlane, path: str, headers: dict[str, str]
) -> None:
    """Logging somebody in as someone else is an attack, too."""
    token = sqlite_plane.token("viewer")

    answer = sqlite_plane.client.post(path, data={"token": token}, headers=headers)

    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "wanted", ["//evil.example", "/\\evil.example", "https://evil.example", "", "/a\nb", "/%2f"]
)
def test_the_form_leads_to_no_other_site(sqlite_plane: ControlPlane, wanted: str) -> None:
    token = sqlite_plane.token("viewer")

    assert visitor.log_in(sqlite_plane, token, wanted=wanted).headers["location"] == "/"


def test_logging_out_ends_the_session_for_whoever_copied_it(plane: ControlPlane) -> None:
    session = visitor.admin(plane)
    assert plane.client.get("/canaries", headers=session).status_code == 200

    answer = plane.client.post("/logout", headers={**session, **ORIGIN})

    assert 'steadyframe_session=""' in answer.headers["set-cookie"]
    assert plane.client.get("/canaries", headers=session).status_code == 303


def test_a_session_ends_by_itself(plane: ControlPlane) -> None:
    session = visitor.admin(plane)
    plane.clock.advance(seconds=web_sessions.LASTS.total_seconds() - 1)
    assert plane.client.get("/", headers=session).status_code == 200
    plane.clock.advance(seconds=1)
    assert plane.client.get("/", headers=session).status_code == 303


def test_revoking_the_token_ends_its_sessions(plane: ControlPlane) -> None:
    made = plane.done("/v1/tokens", role="viewer")
    session = visitor.cookie(plane, made["token"])
    plane.done(f"/v1/tokens/{made['id']}/revoke")

    assert plane.client.get("/", headers=session).status_code == 303


def test_a_session_of_one_fleet_sees_no_other(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    plane.done("/v1/fleets", name="other")
    session = visitor.cookie(plane, plane.token("viewer", fleet="other"))

    home = plane.client.get("/", headers=session).text
    assert "other" in home
    assert f"/fleets/{FLEET}" not in home
    for path in (
        f"/fleets/{FLEET}",
        f"/fleets/{FLEET}/workers/w-1",
        f"/fleets/{FLEET}/workers/w-1/preview.jpg",
        f"/canaries?fleet={FLEET}",
        f"/reports/weekly?fleet={FLEET}",
    ):
        assert plane.client.get(path, headers=session).status_code == 403


def test_a_cookie_that_is_none_of_ours_is_no_fault(sqlite_plane: ControlPlane) -> None:
    for value in ("", "x", "x" * 5000, "../../etc", "%00"):
        headers = {"Cookie": f"steadyframe_session={value}"}
        assert sqlite_plane.client.get("/", headers=headers).status_code == 303
