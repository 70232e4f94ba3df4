"""The ledger through the API: who may read it, who may write it, and what is told first."""

from typing import Any

import httpx
import pytest

from controlplane.domain.canary import Event, Phase
from controlplane.services import ledger
from controlplane.store import canaries as canary_store
from controlplane.store import history
from tests.api.control_plane import FLAG, FLEET, STACK, ControlPlane, bearer

NEXT = {**STACK, "torch": "2.14"}
RUNNING = {"flags": {FLAG: "fused_steady"}}


def adopted(plane: ControlPlane, *workers: str) -> None:
    """A fleet that only observes, whose workers run the fast variant."""
    plane.fleet(mode="observe")
    for worker in workers or ("w-1", "w-2"):
        assert plane.register(worker, **RUNNING).status_code == 200


def attest(plane: ControlPlane, *, fleet: str = FLEET, **changes: Any) -> httpx.Response:
    wanted = {"flag": FLAG, "variant": "fused_steady", **changes}
    return plane.post(f"/v1/fleets/{fleet}/attestations", **wanted)


def attested(plane: ControlPlane, **changes: Any) -> int:
    answer = attest(plane, **changes)
    assert answer.status_code == 201, answer.text
    number: int = answer.json()["numbers"][0]
    return number


def failed_canary(plane: ControlPlane) -> str:
    """A canary whose gate failed and that is back, as the reconciler records one."""
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "demo"}
    name: str = plane.done("/v1/canaries", **wanted)["name"]
    with plane.parts.context.database.write() as conn:
        canary = canary_store.get(conn, name_or_id=name)
        history.append_transition(
            conn,
            canary_id=canary.id,
            event=Event.GATE_FAILED,
            phase_from=Phase.PROGRESSING,
            phase_to=Phase.ROLLING_BACK,
            step=0,
            reason="floor: 23.1 fps",
            actor="steadyframe",
            decision_id=None,
            now=plane.clock.now(),
        )
        now = plane.clock.now()
        conn.exec_driver_sql("update canaries set phase = 'rolled_back'")
        ledger.disqualify(conn, canary, now=now)
    return name


def test_a_fleet_goes_on_with_what_was_attested(plane: ControlPlane) -> None:
    adopted(plane)
    number = attested(plane, reason="ran well for seven weeks")
    plane.done(f"/v1/fleets/{FLEET}/mode", mode="enforce")

    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "fused_steady"}
    (listed,) = plane.get("/v1/qualifications")["items"]
    assert (listed["number"], listed["standing"], listed["origin"]) == (
        number,
        "qualified",
        "attested",
    )
    assert (listed["fleet"], listed["reason"]) == (FLEET, "ran well for seven weeks")
    assert plane.audit()[1] == "qualification.attested"


def test_an_upgraded_worker_falls_back_and_comes_back_when_its_stack_is_attested(
    plane: ControlPlane,
) -> None:
    """The whole way through registration, as a worker goes it."""
    adopted(plane)
    attested(plane)
    plane.done(f"/v1/fleets/{FLEET}/mode", mode="enforce")
    answer = plane.register("w-1", incarnation="upgraded", stack=NEXT, **RUNNING)
    assert answer.json()["flags"] == {FLAG: "nccl"}
    assert "not qualified on stack" in answer.json()["reasons"][0]["reason"]

    answer = attest(plane)

    assert f"w-1: {FLAG} nccl -> fused_steady" in answer.json()["effects"]
    told = plane.desired("w-1", after=0, incarnation="upgraded").json()
    assert told["flags"] == {FLAG: "fused_steady"}
    assert plane.desired("w-2", after=0).json()["flags"] == {FLAG: "fused_steady"}


def test_what_would_happen_is_told_and_nothing_is_done(plane: ControlPlane) -> None:
    adopted(plane)
    path = f"/v1/fleets/{FLEET}/attestations"
    body = {"flag": FLAG, "variant": "fused_steady", "reason": "x"}

    rehearsed = plane.client.post(
        path, headers=plane.admin, json=body, params={"dry_run": "true"}
    ).json()

    assert "2 of 2 workers that know it run it now" in rehearsed["effects"][0]
    assert plane.get("/v1/qualifications")["items"] == []


def test_what_is_revoked_is_not_run_and_stays_in_the_history(plane: ControlPlane) -> None:
    adopted(plane)
    number = attested(plane)
    plane.done(f"/v1/fleets/{FLEET}/mode", mode="enforce")

    revoked = plane.done(f"/v1/qualifications/{number}/revoke", reason="another build")

    assert f"fleet {FLEET}: w-1: {FLAG} fused_steady -> nccl" in revoked["effects"]
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}
    assert plane.get("/v1/qualifications")["items"] == []
    shown = plane.get(f"/v1/qualifications/{number}")
    assert (shown["is_current"], shown["revoked_reason"]) == (False, "another build")
    assert [one["number"] for one in shown["history"]] == [number]
    assert plane.audit()[0] == "qualification.revoked"


def test_roles_are_asked_for(plane: ControlPlane) -> None:
    """A viewer reads; whoever attests or revokes is an operator."""
    adopted(plane)
    viewer, operator = plane.token("viewer"), plane.token("operator")
    assert attest(plane, token=viewer).status_code == 403
    number = attested(plane, token=operator)
    path = f"/v1/qualifications/{number}"
    assert plane.get(path, token=viewer)["number"] == number
    assert plane.get("/v1/qualifications", token=viewer)["items"]
    refused = plane.post(f"{path}/revoke", token=viewer)
    assert (refused.status_code, "operator" in refused.json()["detail"]) == (403, True)
    assert plane.post(f"{path}/revoke", token=operator).is_success
    worker = plane.worker_token("w-1")
    assert plane.client.get(path, headers=bearer(worker)).status_code == 403


def test_a_token_of_one_fleet_says_nothing_of_another(plane: ControlPlane) -> None:
    adopted(plane)
    plane.done("/v1/fleets", name="other")
    number = attested(plane)
    token = plane.token("operator", fleet="other")

    assert attest(plane, token=token).status_code == 403
    path = f"/v1/qualifications/{number}"
    assert plane.client.get(path, headers=bearer(token)).status_code == 403
    assert plane.post(f"{path}/revoke", token=token).status_code == 403
    assert plane.get("/v1/qualifications", token=token)["items"] == []
    listed = plane.client.get(f"/v1/qualifications?fleet={FLEET}", headers=bearer(token))
    assert listed.status_code == 403


def test_a_token_of_one_fleet_does_not_revoke_what_holds_in_every_fleet(
    plane: ControlPlane,
) -> None:
    plane.fleet("w-1", "w-2")
    failed_canary(plane)
    token = plane.token("operator", fleet=FLEET)
    (record,) = plane.get("/v1/qualifications", token=token)["items"]

    refused = plane.post(f"/v1/qualifications/{record['number']}/revoke", token=token)

    assert (refused.status_code, "every fleet" in refused.json()["detail"]) == (403, True)


def test_what_failed_is_tried_again_by_an_admin_alone_and_numbered(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    name = failed_canary(plane)
    operator = plane.token("operator")
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "demo"}

    refused = plane.post("/v1/canaries", token=operator, **wanted)
    again = plane.post("/v1/canaries", reason="another build of the kernel", **wanted)

    assert refused.status_code == 403
    for part in (name, "23.1 fps", "only an admin", "reason"):
        assert part in refused.json()["detail"]
    assert (again.status_code, again.json()["attempt"]) == (201, 2)
    assert any("attempt 2 of fused_steady" in effect for effect in again.json()["effects"])
    shown = plane.get(f"/v1/canaries/{again.json()['name']}")
    assert shown["canary"]["attempt"] == 2


def test_a_dry_run_of_another_attempt_asks_for_the_role_too(sqlite_plane: ControlPlane) -> None:
    """Who may not do it must not be shown that it could be done."""
    sqlite_plane.fleet("w-1", "w-2")
    failed_canary(sqlite_plane)
    token = sqlite_plane.token("operator")
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "demo"}

    answer = sqlite_plane.client.post(
        "/v1/canaries",
        headers=bearer(token),
        json={**wanted, "reason": "x"},
        params={"dry_run": "true"},
    )

    assert answer.status_code == 403


@pytest.mark.parametrize("verb", ["show", "revoke"])
@pytest.mark.parametrize(
    ("number", "status"), [("4711", 404), ("0", 422), ("-1", 422), ("x", 422), (str(2**63), 422)]
)
def test_a_number_that_is_none_is_refused(
    sqlite_plane: ControlPlane, verb: str, number: str, status: int
) -> None:
    path = f"/v1/qualifications/{number}"
    if verb == "show":
        answer = sqlite_plane.client.get(path, headers=sqlite_plane.admin)
    else:
        answer = sqlite_plane.post(f"{path}/revoke")

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_list_goes_on_where_the_page_before_ended(plane: ControlPlane) -> None:
    adopted(plane, "w-1", "w-2")
    assert plane.register("w-3", stack=NEXT, **RUNNING).status_code == 200
    attested(plane)

    first = plane.get("/v1/qualifications?limit=1")
    second = plane.get(f"/v1/qualifications?limit=1&cursor={first['next_cursor']}")

    stacks = {page["items"][0]["stack"] for page in (first, second)}
    assert (len(stacks), second["next_cursor"]) == (2, None)
