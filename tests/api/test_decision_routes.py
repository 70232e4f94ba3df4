"""Decisions through the API: read by viewers of their fleet, judged again, and never changed."""

from typing import Any

from sqlalchemy import update

from controlplane.domain import digest
from controlplane.services import decisions
from controlplane.store.columns import to_json
from controlplane.store.tables import decisions as decision_table
from tests.api.control_plane import FLAG, FLEET, ControlPlane, bearer

NAME = "fused-allreduce-1"


def decided(plane: ControlPlane) -> str:
    """The id of the first decision on a canary that was aborted while it was exposed."""
    plane.fleet("w-1", "w-2", "w-3")
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="demo")
    plane.tick()
    plane.tick()
    plane.done(f"/v1/canaries/{NAME}/requests", kind="abort")
    plane.tick()
    found: list[dict[str, Any]] = plane.get(f"/v1/canaries/{NAME}/decisions")["items"]
    return str(found[0]["id"])


def test_a_decision_of_the_running_control_plane_is_judged_again_to_equality(
    plane: ControlPlane,
) -> None:
    """What the reconciler stored, not what a test put there."""
    decision = decided(plane)
    viewer = plane.token("viewer", fleet=FLEET)

    answer = plane.client.post(f"/v1/decisions/{decision}/verify", headers=bearer(viewer))
    shown = plane.get(f"/v1/decisions/{decision}", token=viewer)

    assert answer.status_code == 200, answer.text
    assert (answer.json()["result"], answer.json()["differences"]) == ("equal", [])
    assert answer.json()["canary"] == NAME
    assert "in the audit log, too" in answer.json()["said"]
    assert (shown["id"], shown["inputs"]["decision"]) == (decision, decision)


def test_a_record_that_was_tampered_with_is_told_by_its_place(sqlite_plane: ControlPlane) -> None:
    decision = decided(sqlite_plane)
    with sqlite_plane.parts.context.database.write() as conn:
        conn.execute(update(decision_table).values(verdict="passing"))

    answer = sqlite_plane.client.post(
        f"/v1/decisions/{decision}/verify", headers=sqlite_plane.admin
    )

    assert answer.json()["result"] == "differs"
    (difference,) = answer.json()["differences"]
    assert difference == {
        "where": "verdict",
        "recorded": "passing",
        "recomputed": "unmeasured",
    }


def test_a_forgery_that_fits_itself_differs_from_the_audit_log(
    sqlite_plane: ControlPlane,
) -> None:
    """Inputs, gates and digest can be made to fit; the chain of the audit log keeps the digest."""
    decision = decided(sqlite_plane)
    with sqlite_plane.parts.context.database.write() as conn:
        kept = decisions.get(conn, decision)
        forged = {**kept.inputs, "bake_s": 3600.0}
        values = {"inputs": to_json(forged), "digest": digest.digest(forged)}
        conn.execute(update(decision_table).values(values))
        found = decisions.verify(conn, decision)

    (difference,) = found.differences
    assert difference.where == "audit.digest"
    assert (difference.recorded, difference.recomputed) == (kept.digest, digest.digest(forged))


def test_who_may_not_see_the_fleet_is_refused(sqlite_plane: ControlPlane) -> None:
    decision = decided(sqlite_plane)
    sqlite_plane.done("/v1/fleets", name="elsewhere")
    stranger = bearer(sqlite_plane.token("viewer", fleet="elsewhere"))
    worker = bearer(sqlite_plane.worker_token("w-1"))

    path = f"/v1/decisions/{decision}"
    for headers in (stranger, worker):
        assert sqlite_plane.client.get(path, headers=headers).status_code == 403
        refused = sqlite_plane.client.post(f"{path}/verify", headers=headers)
        assert refused.status_code == 403


def test_a_decision_that_is_not_there_is_not_found(sqlite_plane: ControlPlane) -> None:
    viewer = bearer(sqlite_plane.token("viewer"))
    missing = sqlite_plane.client.get("/v1/decisions/nothing", headers=viewer)

    assert missing.status_code == 404
    assert missing.json()["kind"] == "decision"


def test_an_explanation_is_for_viewers_of_the_fleet(sqlite_plane: ControlPlane) -> None:
    decided(sqlite_plane)
    sqlite_plane.done("/v1/fleets", name="elsewhere")
    path = f"/v1/canaries/{NAME}/explanation"

    told = sqlite_plane.get(path, token=sqlite_plane.token("viewer", fleet=FLEET))
    stranger = bearer(sqlite_plane.token("viewer", fleet="elsewhere"))

    assert told["canary"] == NAME
    assert told["decided"].endswith("a test")
    assert "no gate that sent it back" in told["what_if"][0]
    assert sqlite_plane.client.get(path, headers=stranger).status_code == 403


def test_looking_again_without_news_stores_no_decision(sqlite_plane: ControlPlane) -> None:
    """A tick a second would bury the decisions that changed something."""
    decided(sqlite_plane)
    path = f"/v1/canaries/{NAME}/decisions"
    before = sqlite_plane.get(path)["items"]
    for _ in range(5):
        sqlite_plane.clock.advance(seconds=1)
        sqlite_plane.tick()

    assert sqlite_plane.get(path)["items"] == before
