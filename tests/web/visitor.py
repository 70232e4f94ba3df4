"""Somebody with a browser, as far as cookies and forms go."""

import httpx

from tests.api.control_plane import ControlPlane

ORIGIN = {"Origin": "http://localhost"}


def log_in(plane: ControlPlane, token: str, *, wanted: str = "/") -> httpx.Response:
    """What the form answers."""
    form = {"token": token, "next": wanted}
    return plane.client.post("/login", data=form, headers=ORIGIN)


def cookie(plane: ControlPlane, token: str) -> dict[str, str]:
    """The header of a new session."""
    answer = log_in(plane, token)
    assert answer.status_code == 303, answer.text
    return {"Cookie": answer.headers["set-cookie"].partition(";")[0]}


def admin(plane: ControlPlane) -> dict[str, str]:
    """The header of a session of the admin."""
    return cookie(plane, plane.admin["Authorization"].removeprefix("Bearer "))
