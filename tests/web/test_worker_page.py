"""What the page of a worker says of its breaker, now and before."""

from tests.api.control_plane import FLAG, FLEET, ControlPlane
from tests.web import visitor

WORKER = f"/fleets/{FLEET}/workers/w-1"


def shown(plane: ControlPlane) -> str:
    return plane.client.get(WORKER, headers=visitor.admin(plane)).text


def trip(plane: ControlPlane, name: str, *, reason: str) -> None:
    body = {"incarnation": "life-of-w-1", "trip": name, "reason": reason, "detail": "a test"}
    answer = plane.as_worker("w-1", "trips", **body, flags={FLAG: "fused_steady"}, generation=2)
    assert answer.status_code == 204, answer.text


def test_a_breaker_that_was_restored_is_closed_and_its_last_opening_is_told(
    sqlite_plane: ControlPlane,
) -> None:
    """The same page lists the flip that it caused: it must not say that there was none."""
    plane = sqlite_plane
    plane.fleet("w-1")
    assert "nothing of it in what the worker was last told" in shown(plane)
    plane.done(f"/v1{WORKER}/pins", flag=FLAG, variant="fused_steady")
    trip(plane, "t-1", reason="nan")
    plane.done(f"/v1{WORKER}/restore")
    plane.clock.advance(minutes=1)
    opened = f"{plane.clock.now():%Y-%m-%d %H:%M:%S}Z"
    trip(plane, "t-2", reason="rank_disagreement")
    # A line that is stopped and lifted opens nothing.
    plane.clock.advance(minutes=1)
    plane.done(f"/v1/fleets/{FLEET}/stop-the-line")
    plane.done(f"/v1/fleets/{FLEET}/lift")
    assert "restore it once looked at" in shown(plane)

    plane.done(f"/v1{WORKER}/restore")

    assert f"last opened {opened} (rank_disagreement)" in shown(plane)
