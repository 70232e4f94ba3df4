"""A change is made once for each key, has a reason, leaves a trace, and can be tried dry."""

from typing import Any

import pytest

from controlplane.store import audit
from tests.api.control_plane import FLAG, FLEET, ControlPlane

PIN = f"/v1/fleets/{FLEET}/workers/w-1/pins"


def test_a_dry_run_says_what_would_happen_and_changes_nothing(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    before = (plane.get("/v1/fleets"), plane.get("/v1/audit"), plane.get(f"{PIN[:-5]}"))

    answer = plane.post(f"{PIN}?dry_run=true", flag=FLAG, variant="fused_steady")

    assert answer.status_code == 200
    assert set(answer.json()) == {"effects"}
    assert any("nccl -> fused_steady" in effect for effect in answer.json()["effects"])
    assert before == (plane.get("/v1/fleets"), plane.get("/v1/audit"), plane.get(f"{PIN[:-5]}"))


def test_a_dry_run_and_the_change_say_the_same(plane: ControlPlane) -> None:
    """A person confirms what the dry run says."""
    plane.fleet("w-1", "w-2", "w-3")
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_all", "policy": "demo"}

    dry = plane.done("/v1/canaries?dry_run=true", **wanted)["effects"]
    done = plane.done("/v1/canaries", **wanted)["effects"]

    assert dry == done
    assert "fused_all exists to be caught: it is never promoted" in done


def test_a_dry_run_refuses_what_the_change_would(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    assert plane.post(f"{PIN}?dry_run=true", flag=FLAG, variant="nope").status_code == 422


def test_a_repeat_under_one_key_is_answered_and_not_done_again(plane: ControlPlane) -> None:
    """An answer that got lost is asked for again."""
    first = plane.done("/v1/fleets", name=FLEET, key="once")
    again = plane.done("/v1/fleets", name=FLEET, key="once")

    assert first == again
    assert plane.audit().count("fleet.adopted") == 1


def test_a_key_stands_for_one_request_only(plane: ControlPlane) -> None:
    plane.done("/v1/fleets", name=FLEET, key="once")

    assert plane.post("/v1/fleets", name="other", key="once").status_code == 409
    assert plane.post(f"/v1/fleets/{FLEET}/stop-the-line", key="once").status_code == 409


def test_two_people_may_think_of_the_same_key(plane: ControlPlane) -> None:
    plane.done("/v1/fleets", name=FLEET, key="once")
    token = plane.token("operator")

    assert plane.post("/v1/fleets", token=token, name="other", key="once").status_code == 201


def test_a_change_that_was_refused_may_be_tried_again_under_its_key(plane: ControlPlane) -> None:
    """The refusal kept nothing, so it must not keep the key either."""
    path = f"/v1/fleets/{FLEET}/stop-the-line"
    assert plane.post(path, key="once").status_code == 404
    plane.done("/v1/fleets", name=FLEET)

    assert plane.post(path, key="once").status_code == 200


@pytest.mark.parametrize("key", ["", "a b", "x" * 101, "a\tb", "é", "../x"])
def test_a_key_is_a_word(sqlite_plane: ControlPlane, key: str) -> None:
    headers: dict[str, Any] = {**sqlite_plane.admin, "Idempotency-Key": key.encode()}
    body = {"name": FLEET, "reason": "a test"}

    answer = sqlite_plane.client.post("/v1/fleets", headers=headers, json=body)

    assert answer.status_code == 422


def test_every_change_leaves_who_why_and_what(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    plane.done(PIN, flag=FLAG, variant="fused_steady", reason="looks slow")

    row = plane.get("/v1/audit")["items"][0]

    assert row["action"] == "worker.pinned"
    assert row["reason"] == "looks slow"
    assert row["actor"].startswith("admin:")
    assert row["target"] == f"{FLEET}/w-1"
    with plane.parts.context.database.read() as conn:
        assert audit.verify(conn) > 0


@pytest.mark.parametrize("reason", ["", "   ", "a\x00b", "a\x1b[2Jb", "x" * 501, 7, None, ["why"]])
def test_a_reason_is_words_for_a_person(sqlite_plane: ControlPlane, reason: object) -> None:
    """It is shown in terminals and logs, where an escape sequence is a command."""
    answer = sqlite_plane.post("/v1/fleets", name=FLEET, reason=reason)

    assert answer.status_code == 422
    assert answer.json()["key"] == "reason"


def test_a_change_without_a_reason_is_refused(sqlite_plane: ControlPlane) -> None:
    answer = sqlite_plane.client.post(
        "/v1/fleets", headers=sqlite_plane.admin, json={"name": FLEET}
    )

    assert (answer.status_code, answer.json()["key"]) == (422, "reason")


def test_an_unknown_key_is_named_with_those_that_are_known(sqlite_plane: ControlPlane) -> None:
    """`mod: enforce` must not pass as a change that changed nothing."""
    sqlite_plane.fleet()

    answer = sqlite_plane.post(f"/v1/fleets/{FLEET}/mode", mod="enforce", mode="enforce")

    assert answer.status_code == 422
    problem = answer.json()
    assert (problem["key"], problem["value"]) == ("mod", "enforce")
    assert problem["allowed"] == "mode, reason"


def test_a_change_tells_the_workers_it_is_for_and_the_loop(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    before = plane.num_nudges

    plane.done(PIN, flag=FLAG, variant="fused_steady")

    assert plane.num_nudges == before + 1
    assert plane.desired("w-1", after=1).json()["flags"] == {FLAG: "fused_steady"}
    assert plane.desired("w-2", after=1).json()["generation"] == 1
