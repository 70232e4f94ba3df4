"""What operators ask of fleets and workers, and what the answers say."""

import pytest

from tests.api.control_plane import FLAG, FLEET, ControlPlane

WORKER = f"/v1/fleets/{FLEET}/workers/w-1"


def test_a_fleet_is_adopted_to_be_observed(plane: ControlPlane) -> None:
    """Nothing may be flipped before a person said so."""
    assert plane.done("/v1/fleets", name=FLEET)["mode"] == "observe"
    assert plane.post("/v1/fleets", name=FLEET).status_code == 409


def test_the_line_stops_every_worker_and_is_lifted(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady")

    stopped = plane.done(f"/v1/fleets/{FLEET}/stop-the-line", reason="viewers complain")
    flags = plane.desired("w-1", after=0).json()["flags"]
    lifted = plane.done(f"/v1/fleets/{FLEET}/lift")

    assert stopped["stopped_reason"] == "viewers complain"
    assert any("fused_steady -> nccl" in effect for effect in stopped["effects"])
    assert flags == {FLAG: "nccl"}
    assert lifted["stopped_reason"] is None
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "fused_steady"}


def test_the_line_stops_in_a_fleet_that_only_observes(plane: ControlPlane) -> None:
    """The one button that must always work."""
    plane.fleet(mode="observe")
    plane.register("w-1", flags={FLAG: "fused_all"})

    plane.done(f"/v1/fleets/{FLEET}/stop-the-line")

    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}


@pytest.mark.parametrize("again", ["stop-the-line", "lift"])
def test_what_is_so_already_is_said_and_leaves_no_trace(
    sqlite_plane: ControlPlane, again: str
) -> None:
    sqlite_plane.fleet()
    if again == "stop-the-line":
        sqlite_plane.done(f"/v1/fleets/{FLEET}/stop-the-line")
    before = sqlite_plane.audit()

    effects = sqlite_plane.done(f"/v1/fleets/{FLEET}/{again}")["effects"]

    assert effects[0].startswith("nothing changes")
    assert sqlite_plane.audit() == before


def test_a_pin_holds_until_it_expires(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady", expires_in_s=60)
    pinned = plane.desired("w-1", after=0).json()["flags"]

    plane.clock.advance(seconds=61)
    plane.tick()

    assert pinned == {FLAG: "fused_steady"}
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}


def test_a_pin_lasts_four_hours_unless_said_and_a_day_at_most(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1")
    made = sqlite_plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady")
    too_long = sqlite_plane.post(
        f"{WORKER}/pins", flag=FLAG, variant="fused_steady", expires_in_s=24 * 3600 + 1
    )

    assert made["pins"][0]["expires_at"] == "2026-10-08T16:00:00Z"
    assert (too_long.status_code, too_long.json()["key"]) == (422, "expires_in_s")


@pytest.mark.parametrize("expires_in_s", [0, -1, 1.5, "60", True, 10**400, None])
def test_a_pin_lasts_whole_seconds(sqlite_plane: ControlPlane, expires_in_s: object) -> None:
    """`true` is no number of seconds, and "60" is text: what is lax here is a wrong pin there."""
    sqlite_plane.fleet("w-1")

    answer = sqlite_plane.post(
        f"{WORKER}/pins", flag=FLAG, variant="fused_steady", expires_in_s=expires_in_s
    )

    assert answer.status_code in {400, 422}


def test_a_variant_that_the_flag_does_not_have_is_refused_with_those_it_has(
    sqlite_plane: ControlPlane,
) -> None:
    sqlite_plane.fleet("w-1")

    problem = sqlite_plane.post(f"{WORKER}/pins", flag=FLAG, variant="fussed").json()

    assert (problem["status"], problem["key"], problem["value"]) == (422, FLAG, "fussed")
    assert "fused_steady" in problem["allowed"]


def test_a_variant_that_the_build_does_not_know_is_a_conflict(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet()
    sqlite_plane.register("w-1", capabilities={FLAG: ["nccl"]})

    answer = sqlite_plane.post(f"{WORKER}/pins", flag=FLAG, variant="fused_steady")

    assert answer.status_code == 409
    assert "it knows: nccl" in answer.json()["detail"]


def test_an_unpin_ends_a_pin_and_needs_one(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady")

    assert plane.done(f"{WORKER}/unpin", flag=FLAG)["pins"] == []
    assert plane.post(f"{WORKER}/unpin", flag=FLAG).status_code == 404
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}


def test_a_cordoned_worker_admits_no_session(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    plane.done(f"{WORKER}/cordon")
    cordoned = plane.desired("w-1", after=0).json()["is_admitting"]
    plane.done(f"{WORKER}/uncordon")

    assert not cordoned
    assert plane.desired("w-1", after=0).json()["is_admitting"]


def test_explain_names_layer_and_reason_of_each_flag(plane: ControlPlane) -> None:
    """The first question at 3 a.m."""
    plane.fleet("w-1")
    plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady", reason="a try")

    (reason,) = plane.get(f"{WORKER}/explain")["reasons"]

    assert (reason["flag"], reason["variant"], reason["layer"]) == (FLAG, "fused_steady", "pin")
    assert "a try" in reason["reason"]
    assert (reason["desired"], reason["effective"]) == ("fused_steady", "nccl")


def test_workers_are_paged_by_name(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2", "w-3")
    path = f"/v1/fleets/{FLEET}/workers?limit=2"

    first = plane.get(path)
    second = plane.get(f"{path}&cursor={first['next_cursor']}")

    assert [one["name"] for one in first["items"] + second["items"]] == ["w-1", "w-2", "w-3"]
    assert second["next_cursor"] is None


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=501", "limit=-1", "limit=1e3", "limit=x", "cursor=../..", "cursor=%00"],
)
def test_a_page_is_bounded(sqlite_plane: ControlPlane, query: str) -> None:
    sqlite_plane.fleet()
    path = f"/v1/fleets/{FLEET}/workers?{query}"

    assert sqlite_plane.client.get(path, headers=sqlite_plane.admin).status_code == 422


@pytest.mark.parametrize(
    "path",
    [
        "/v1/fleets/nowhere",
        f"{WORKER}9",
        f"{WORKER}9/explain",
        "/v1/policies/nothing",
        "/v1/canaries/nothing-1",
        "/v1/canaries/nothing-1/decisions",
        "/v1/sessions?fleet=nowhere",
        "/v1/reports/weekly?fleet=nowhere",
        "/v1/canaries?fleet=nowhere",
    ],
)
def test_what_is_not_there_is_not_found(sqlite_plane: ControlPlane, path: str) -> None:
    sqlite_plane.fleet()

    answer = sqlite_plane.client.get(path, headers=sqlite_plane.admin)

    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_variant_that_exists_to_be_caught_cannot_be_pinned(plane: ControlPlane) -> None:
    """The August kernel runs under a canary's lease and gates, or not at all."""
    plane.fleet("w-1")
    answer = plane.post(f"{WORKER}/pins", flag=FLAG, variant="fused_all")
    assert answer.status_code == 409
    assert "canaries only" in answer.json()["detail"]
