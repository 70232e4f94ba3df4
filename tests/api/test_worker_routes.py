"""A worker registers, learns what to run, says what it runs, and is told when it is superseded."""

from typing import Any

import pytest

from controlplane.api.routes.workers import NUM_TRIES
from controlplane.domain.errors import StaleVersionError
from controlplane.services import workers
from tests.api.control_plane import FLAG, FLEET, STACK, ControlPlane, effective


def _trip(**changes: Any) -> dict[str, Any]:
    return {
        "incarnation": "life-of-w-1",
        "trip": "trip-1",
        "reason": "nan",
        "flags": {FLAG: "fused_steady"},
        "generation": 1,
        **changes,
    }


def test_a_fleet_that_nobody_adopted_takes_no_worker(plane: ControlPlane) -> None:
    plane.fleet()
    token = plane.token("worker", fleet=FLEET)

    answer = plane.post("/v1/fleets/nowhere/workers/w-1/registration", token=token)

    assert answer.status_code in {403, 422}


def test_a_worker_learns_what_to_run_when_it_registers(plane: ControlPlane) -> None:
    plane.fleet()

    answer = plane.register("w-1")

    assert answer.status_code == 200
    state = answer.json()
    assert state["flags"] == {FLAG: "nccl"}
    assert state["reasons"][0]["layer"] == "fallback"
    assert "lease_s" not in state  # nothing here is unproven


def test_a_generation_is_above_what_the_worker_has_seen(plane: ControlPlane) -> None:
    """A restored database must not issue a number that the worker refuses as old."""
    plane.fleet()

    assert plane.register("w-1", generation=41).json()["generation"] == 42


def test_in_a_fleet_that_observes_nothing_is_flipped(plane: ControlPlane) -> None:
    plane.fleet(mode="observe")

    state = plane.register("w-1", flags={FLAG: "fused_steady"}).json()

    assert state["flags"] == {FLAG: "fused_steady"}


def test_an_incarnation_that_was_succeeded_is_told_so(plane: ControlPlane) -> None:
    """Two lives of one worker would write into each other's evidence."""
    plane.fleet("w-1")
    plane.register("w-1", incarnation="second-life")

    assert plane.register("w-1").status_code == 409
    assert plane.desired("w-1", after=0).status_code == 409
    assert plane.as_worker("w-1", "effective", **effective("w-1", 1)).status_code == 409


def test_a_path_and_a_body_that_differ_are_refused(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    answer = plane.as_worker("w-1", "registration", **_registration_of("w-2"))

    assert answer.status_code == 422
    assert answer.json()["key"] == "worker"


def test_fields_of_a_newer_release_are_ignored(plane: ControlPlane) -> None:
    """Workers and control plane are upgraded one after the other."""
    plane.fleet()

    assert plane.register("w-1", tomorrow={"anything": [1, None]}).status_code == 200


def test_a_call_with_the_present_generation_comes_back_with_it(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    answer = plane.desired("w-1", after=1)

    assert (answer.status_code, answer.json()["generation"]) == (200, 1)


def test_a_worker_that_never_registered_is_not_found(plane: ControlPlane) -> None:
    plane.fleet()

    assert plane.desired("w-1", after=0).status_code == 404


def test_asking_counts_as_being_heard(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    now = plane.clock.advance(minutes=1)

    plane.desired("w-1", after=0)

    seen_at = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")["last_seen_at"]
    assert seen_at == now.isoformat().replace("+00:00", "Z")


def test_what_every_rank_runs_is_recorded_and_wakes_the_loop(plane: ControlPlane) -> None:
    plane.fleet()
    plane.register("w-1")
    before = plane.num_nudges

    answer = plane.as_worker("w-1", "effective", **effective("w-1", 1))

    assert (answer.status_code, answer.content) == (204, b"")
    assert plane.get(f"/v1/fleets/{FLEET}/workers/w-1")["is_effective"]
    assert plane.num_nudges > before


def test_ranks_that_disagree_are_refused(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    ranks = [
        {"rank": rank, "generation": 1, "digest": digit * 16, "step": 7}
        for rank, digit in enumerate("ab")
    ]

    assert (
        plane.as_worker("w-1", "effective", **effective("w-1", 1, ranks=ranks)).status_code == 422
    )


def test_a_trip_opens_the_breaker_and_a_repeat_is_no_second(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    before = plane.num_nudges

    answers = [plane.as_worker("w-1", "trips", **_trip()).status_code for _ in range(2)]

    assert answers == [204, 204]
    assert plane.get(f"/v1/fleets/{FLEET}/workers/w-1")["trip"]["reason"] == "nan"
    assert plane.num_nudges > before
    explained = plane.get(f"/v1/fleets/{FLEET}/workers/w-1/explain")
    assert explained["reasons"][0]["layer"] == "breaker"


def test_a_trip_with_a_nul_in_its_detail_is_kept_without_it(plane: ControlPlane) -> None:
    """A crash dump is bytes; PostgreSQL would refuse the one message that matters."""
    plane.fleet("w-1")

    assert plane.as_worker("w-1", "trips", **_trip(detail="a\x00b")).status_code == 204


def test_a_lease_counts_down_and_never_below_zero(plane: ControlPlane) -> None:
    """An unproven variant may run only while somebody judges it."""
    plane.fleet("w-1", "w-2", "w-3")
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="demo")
    plane.tick()
    plane.tick()

    given_s = plane.desired("w-1", after=0).json()["lease_s"]
    plane.clock.advance(seconds=4)
    later_s = plane.desired("w-1", after=0).json()["lease_s"]
    plane.clock.advance(hours=1)

    assert (given_s, later_s) == (10, 6)  # `lease: 10s` of policies/demo.yaml
    assert plane.desired("w-1", after=0).json()["lease_s"] == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": -1},
        {"generation": 2**63},
        {"generation": 2**62},
        {"generation": 1e309},
        {"hardware": "../../etc"},
        {"incarnation": "a b"},
        {"flags": {"f" * 70: "x"}},
        {"flags": [["a", "b"]]},
        {"stack": {f"k{number}": "v" for number in range(100)}},
        {"stack": {"torch": "x" * 201}},
        {"capabilities": "everything"},
        {"address": "\ud800"},
    ],
)
def test_a_registration_outside_the_contract_is_refused(
    sqlite_plane: ControlPlane, changes: dict[str, Any]
) -> None:
    sqlite_plane.fleet("w-1")
    body = {**_registration_of("w-1"), **changes}

    answer = sqlite_plane.as_raw_worker("w-1", "registration", body)

    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("after", ["-1", "x", "9" * 30, "1.5", "", "1e3", "nan"])
def test_a_generation_to_ask_after_is_a_number(sqlite_plane: ControlPlane, after: str) -> None:
    sqlite_plane.fleet("w-1")
    path = f"/v1/fleets/{FLEET}/workers/w-1/desired?incarnation=life-of-w-1&after={after}"
    headers = {"Authorization": f"Bearer {sqlite_plane.worker_token('w-1')}"}

    assert sqlite_plane.client.get(path, headers=headers).status_code == 422


def _registration_of(worker: str) -> dict[str, Any]:
    return {
        "fleet": FLEET,
        "worker": worker,
        "incarnation": "life",
        "hardware": "cpu",
        "stack": STACK,
        "generation": 0,
        "flags": {FLAG: "nccl"},
        "capabilities": {FLAG: ["nccl"]},
    }


def test_a_row_that_others_change_is_not_told_as_superseded(
    sqlite_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that gets 409 stops for good; one that gets 503 comes back."""
    sqlite_plane.fleet("w-1")
    tries = []

    def stale(*_: object, **__: object) -> None:
        tries.append(1)
        raise StaleVersionError("worker", "w-1", 3)

    monkeypatch.setattr(workers, "take_effective", stale)

    answer = sqlite_plane.as_worker("w-1", "effective", **effective("w-1", 1))

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert len(tries) == NUM_TRIES


def test_a_worker_is_restored_by_a_person_who_has_looked(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    path = f"/v1/fleets/{FLEET}/workers/w-1"
    assert plane.done(f"{path}/restore")["effects"][0].startswith("nothing changes")
    plane.done(f"{path}/pins", flag=FLAG, variant="fused_steady")
    plane.as_worker("w-1", "trips", **_trip())
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "nccl"}

    restored = plane.done(f"{path}/restore")

    assert restored["trip"] is None
    assert plane.desired("w-1", after=0).json()["flags"] == {FLAG: "fused_steady"}
    assert "worker.restored" in plane.audit()


def test_break_glass_is_ended_only_on_the_machine_itself(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    plane.as_worker("w-1", "effective", **effective("w-1", 1, is_break_glass=True))
    answer = plane.post(f"/v1/fleets/{FLEET}/workers/w-1/restore")
    assert answer.status_code == 409
    assert "its own machine" in answer.json()["detail"]
