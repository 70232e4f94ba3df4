"""Policies are checked before they are kept, and a canary keeps the one it started with."""

import pytest

from controlplane import assets
from controlplane.services import flags
from tests.api.control_plane import FLAG, FLEET, ControlPlane

OTHER_FLAG = """
  other_flag:
    summary: A flag beside it.
    applies: step
    plain: low
    fallback: {"*": low}
    variants: {low: {summary: One.}, high: {summary: Another.}}
"""
DEMO = (assets.policies() / "demo.yaml").read_text()


def test_what_ships_is_there_at_the_start(sqlite_plane: ControlPlane) -> None:
    flags = [one["name"] for one in sqlite_plane.get("/v1/flags")["items"]]
    policies = [one["name"] for one in sqlite_plane.get("/v1/policies")["items"]]
    shipped = sorted(path.stem for path in assets.policies().glob("*.yaml"))

    assert FLAG in flags
    assert sorted([*policies, "flags"]) == shipped


def test_lint_says_what_a_policy_asks_and_keeps_nothing(sqlite_plane: ControlPlane) -> None:
    before = sqlite_plane.get("/v1/policies")
    draft = DEMO.replace("at_least: 24.0", "at_least: 23.0")
    body = {"document": draft}

    answer = sqlite_plane.client.post("/v1/policies/lint", headers=sqlite_plane.admin, json=body)

    assert answer.status_code == 200
    assert any("23.0 fps" in line for line in answer.json()["describes"])
    assert answer.json()["policy"]["name"] == "demo"
    assert sqlite_plane.get("/v1/policies") == before


@pytest.mark.parametrize(
    ("draft", "key"),
    [
        (DEMO.replace("at_least: 24.0", "at_leest: 24.0"), "at_leest"),
        (DEMO.replace("flag: fused_allreduce", "flag: nothing"), "flag"),
        (DEMO + "\nname: again\n", ""),
        ("&a [*a]", ""),
        ("[" * 10_000, ""),
        ("!!python/object/apply:os.system [id]", ""),
    ],
)
def test_lint_names_what_is_wrong(sqlite_plane: ControlPlane, draft: str, key: str) -> None:
    body = {"document": draft}

    answer = sqlite_plane.client.post("/v1/policies/lint", headers=sqlite_plane.admin, json=body)

    assert answer.status_code == 422
    assert key in answer.json()["key"]


def test_a_canary_goes_on_under_the_policy_it_started_with(plane: ControlPlane) -> None:
    """Whoever loosens a gate must not loosen it for what runs."""
    plane.fleet("w-1", "w-2")
    name = plane.done(
        "/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="demo"
    )["name"]
    before = plane.get(f"/v1/canaries/{name}")

    plane.clock.advance(seconds=1)
    plane.done("/v1/policies", document=DEMO.replace("bake: 5s", "bake: 1s"))

    after = plane.get(f"/v1/canaries/{name}")
    assert after["canary"]["policy_digest"] == before["canary"]["policy_digest"]
    assert after["steps"] == before["steps"]
    newest = plane.get("/v1/policies/demo")
    assert newest["digest"] != before["canary"]["policy_digest"]
    assert newest["document"]["steps"][0]["bake"] == "1s"


def test_the_same_policy_again_is_no_change(sqlite_plane: ControlPlane) -> None:
    before = sqlite_plane.audit()

    effects = sqlite_plane.done("/v1/policies", document=DEMO)["effects"]

    assert effects[0].startswith("nothing changes")
    assert sqlite_plane.audit() == before


def test_a_canary_refuses_a_policy_for_another_flag(sqlite_plane: ControlPlane) -> None:
    """Its gates would be about something else."""
    shipped = (assets.policies() / "flags.yaml").read_text()
    with sqlite_plane.parts.context.database.write() as conn:
        flags.load(conn, shipped + OTHER_FLAG)
    sqlite_plane.fleet("w-1", "w-2")
    draft = DEMO.replace(f"flag: {FLAG}", "flag: other_flag").replace("name: demo", "name: other")
    sqlite_plane.done("/v1/policies", document=draft)

    answer = sqlite_plane.post(
        "/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="other"
    )

    assert (answer.status_code, answer.json()["key"]) == (422, "policy")
    assert "demo" in answer.json()["allowed"]
