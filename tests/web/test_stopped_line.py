"""While a line is stopped: what to do about it, and no worker that looks as if nothing were."""

import pytest

from tests.api.control_plane import FLEET, ControlPlane
from tests.web import visitor

PATHS = ("/", f"/fleets/{FLEET}")
LIFT = f"<code>steadyframe lift {FLEET}</code>"


@pytest.fixture
def stopped(sqlite_plane: ControlPlane) -> ControlPlane:
    """A fleet of one worker that runs its fallback, stopped."""
    sqlite_plane.fleet("w-1")
    sqlite_plane.done(f"/v1/fleets/{FLEET}/stop-the-line")
    return sqlite_plane


def shown(plane: ControlPlane, path: str) -> str:
    return plane.client.get(path, headers=visitor.admin(plane)).text


@pytest.mark.parametrize("path", PATHS)
def test_the_command_that_lifts_it_stands_beside_the_reason(
    stopped: ControlPlane, path: str
) -> None:
    assert LIFT in shown(stopped, path)

    stopped.done(f"/v1/fleets/{FLEET}/lift")

    assert LIFT not in shown(stopped, path)


def test_workers_are_held_by_the_line_until_it_is_lifted(stopped: ControlPlane) -> None:
    text = shown(stopped, PATHS[1])
    assert '<li class="tile watch">' in text
    assert "held by the line" in text
    assert "in service" not in text

    stopped.done(f"/v1/fleets/{FLEET}/lift")

    text = shown(stopped, PATHS[1])
    assert '<li class="tile good">' in text
    assert "held by the line" not in text


def test_a_worker_that_is_silent_is_silent_first(stopped: ControlPlane) -> None:
    """The line explains that it is on its fallback, not that nobody hears of it."""
    stopped.clock.advance(hours=1)

    assert '<li class="tile bad">' in shown(stopped, PATHS[1])
