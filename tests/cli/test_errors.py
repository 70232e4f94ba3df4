"""What goes wrong, how it is told, and with which exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from controlplane.cli.exits import Exit
from tests.cli.fake import FakeControlPlane, run

FLEET = ("GET", "/v1/fleets/live")


@pytest.mark.parametrize(
    ("status", "exit_code"),
    [
        (400, Exit.REFUSED),
        (401, Exit.NOT_AUTHORISED),
        (403, Exit.NOT_AUTHORISED),
        (404, Exit.NOT_FOUND),
        (409, Exit.CONFLICT),
        (422, Exit.REFUSED),
        (500, Exit.SERVER_FAULT),
        (503, Exit.SERVER_FAULT),
    ],
)
def test_each_kind_of_refusal_has_its_exit_code(status: int, exit_code: Exit) -> None:
    """Scripts branch on the code; docs/exit-codes.md lists them."""
    plane = FakeControlPlane(problems={FLEET: (status, {"detail": "no fleet named 'live'"})})
    result = run(plane, "fleet", "show", "live")
    assert result.exit_code == exit_code
    assert "no fleet named 'live'" in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_server_that_is_away_is_named_with_how_to_start_it() -> None:
    """The first thing to check is whether one asks at the right door."""
    plane = FakeControlPlane(error=httpx.ConnectError("refused"))
    result = run(plane, "fleet", "list")
    assert result.exit_code == Exit.SERVER_AWAY
    assert "http://plane.test" in result.stderr
    assert "steadyframe serve" in result.stderr


def test_an_error_under_json_is_json() -> None:
    """A script that parses stdout finds the exit code and the sentence there."""
    plane = FakeControlPlane(error=httpx.ConnectError("refused"))
    told = json.loads(run(plane, "fleet", "list", "--json").stdout)
    assert told["code"] == Exit.SERVER_AWAY


@pytest.mark.parametrize("status", [200, 302, 404, 500, 502])
@pytest.mark.parametrize("kind", ["html", "json"])
def test_another_server_at_that_address_is_told_from_ours(status: int, kind: str) -> None:
    """A wrong port, or a proxy's login page, which answers 200 too."""

    class LoginPage(FakeControlPlane):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            del request
            if kind == "json":
                return httpx.Response(status, json=["Not Found"])
            return httpx.Response(status, text="<html>log in</html>")

    result = run(LoginPage(), "fleet", "list")
    assert result.exit_code == Exit.SERVER_AWAY
    assert "not a Steadyframe server" in result.stderr
    assert "--url" in result.stderr


def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """A token that everyone on the machine reads is everyone's."""
    file = tmp_path / "token"
    file.write_text("sf_secret")
    file.chmod(0o644)
    result = run(FakeControlPlane(), "fleet", "list", "--token-file", str(file))
    assert result.exit_code == Exit.USAGE
    assert "chmod 600" in result.stderr


def test_the_token_file_wins_over_the_environment(tmp_path: Path) -> None:
    """What is said on the command line is meant."""
    file = tmp_path / "token"
    file.write_text("sf_from_file\n")
    file.chmod(0o600)
    plane = FakeControlPlane({("GET", "/v1/fleets"): {"items": []}})
    run(plane, "fleet", "list", "--token-file", str(file))
    assert plane.calls[0].headers["Authorization"] == "Bearer sf_from_file"


def test_the_embedded_control_plane_is_found_by_its_state_folder(tmp_path: Path) -> None:
    """On the machine of `steadyframe serve` nothing needs to be said."""
    (tmp_path / "address.json").write_text('{"url": "http://embedded.test"}')
    token = tmp_path / "admin.token"
    token.write_text("sf_admin")
    token.chmod(0o600)
    plane = FakeControlPlane({("GET", "/v1/fleets"): {"items": []}})
    variables = {"STEADYFRAME_STATE_DIR": str(tmp_path), "STEADYFRAME_URL": ""}
    result = run(
        plane, "fleet", "list", environment={**variables, "STEADYFRAME_TOKEN_FILE": str(token)}
    )
    assert result.exit_code == Exit.OK
    assert plane.calls[0].headers["host"] == "embedded.test"
    assert plane.calls[0].headers["Authorization"] == "Bearer sf_admin"


def test_help_needs_no_heavy_library() -> None:
    """`steadyframe --help` answers at once, so it imports none of these."""
    program = (
        "import sys; from controlplane.cli import main;"
        "heavy = {'httpx', 'fastapi', 'sqlalchemy', 'alembic', 'torch', 'uvicorn', 'rich.live'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


def test_a_reader_that_has_enough_is_no_error() -> None:
    """`steadyframe --help | head -1` ends quietly."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [sys.executable, "-m", "controlplane.cli.main", "--help"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert "Traceback" not in ended.stderr
