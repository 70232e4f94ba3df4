"""Effects say what a person wonders about: why nothing changes, who is next, what is missing."""

import pytest

from tests.api.control_plane import FLAG, FLEET, ControlPlane

WORKER = f"/v1/fleets/{FLEET}/workers/w-1"


def _start(plane: ControlPlane, variant: str, *, policy: str = "demo") -> dict[str, object]:
    answer = plane.post("/v1/canaries", fleet=FLEET, flag=FLAG, variant=variant, policy=policy)
    assert answer.status_code == 201, answer.text
    made: dict[str, object] = answer.json()
    return made


def _said(made: dict[str, object]) -> str:
    effects = made["effects"]
    assert isinstance(effects, list)
    return "\n".join(effects)


def test_a_pin_while_the_line_is_stopped_says_why_nothing_changes(
    sqlite_plane: ControlPlane,
) -> None:
    """At 3 a.m. a flip that does nothing looks like a broken tool."""
    sqlite_plane.fleet("w-1", "w-2")
    sqlite_plane.done(f"/v1/fleets/{FLEET}/stop-the-line", reason="frozen frames")

    said = _said(sqlite_plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady"))

    assert f"w-1 stays on {FLAG}=nccl meanwhile" in said
    assert "frozen frames" in said
    assert "steadyframe lift" in said


def test_a_pin_in_a_fleet_that_only_observes_says_so(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", mode="observe")

    said = _said(sqlite_plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady"))

    assert "only observes" in said
    assert "steadyframe fleet enforce" in said


def test_a_pin_that_takes_effect_says_nothing_of_the_kind(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2")

    said = _said(sqlite_plane.done(f"{WORKER}/pins", flag=FLAG, variant="fused_steady"))

    assert "meanwhile" not in said


def test_a_cordon_says_nothing_of_flags(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2")
    sqlite_plane.done(f"/v1/fleets/{FLEET}/stop-the-line", reason="frozen frames")

    assert "meanwhile" not in _said(sqlite_plane.done(f"{WORKER}/cordon"))


@pytest.mark.parametrize("kind", ["abort", "promote"])
def test_what_ends_a_canary_says_who_begins_then(sqlite_plane: ControlPlane, kind: str) -> None:
    """Whoever aborts to have peace must know that another one starts at once."""
    sqlite_plane.fleet("w-1", "w-2", "w-3")
    first = _start(sqlite_plane, "fused_steady")["name"]
    second = _start(sqlite_plane, "fused_all")
    sqlite_plane.tick()

    said = _said(sqlite_plane.done(f"/v1/canaries/{first}/requests", kind=kind))

    assert second["ahead"] == [first]
    assert f"{second['name']} has waited for it and begins once {first} is over" in said


def test_aborting_one_that_waits_says_that_it_never_began(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2", "w-3")
    _start(sqlite_plane, "fused_steady")
    waiting = _start(sqlite_plane, "fused_all")["name"]

    said = _said(sqlite_plane.done(f"/v1/canaries/{waiting}/requests", kind="abort"))

    assert "cancelled before it began" in said
    assert "begins once" not in said


@pytest.mark.parametrize(("policy", "is_told"), [("fused-allreduce", True), ("demo", False)])
def test_a_policy_that_waits_for_synthetic_sessions_says_how_they_come(
    sqlite_plane: ControlPlane, policy: str, is_told: object
) -> None:
    """Else the canary is held after ten minutes, and nobody knows for want of what."""
    sqlite_plane.fleet("w-1", "w-2", "w-3")

    said = _said(_start(sqlite_plane, "fused_steady", policy=policy))

    assert ("step 1 (soak)" in said and "python -m worker.viewer" in said) is is_told
