"""Preflight over HTTP: a worker is asked, answers once, and is told what it may not say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.store.transaction import Database
from tests.api.control_plane import FLAG, FLEET, ControlPlane, bearer, control_plane, effective
from tests.clock import CountingId, FakeClock

LENGTHS = [8, 24, 40, 56, 72, 88, 104, 120]


@pytest.fixture
def asked(
    database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> Iterator[ControlPlane]:
    """A control plane whose canary in preflight has asked worker a."""
    with control_plane(database, tmp_path, clock=clock, new_id=new_id) as plane:
        plane.fleet("a", "b")
        plane.done(
            "/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="preflight"
        )
        plane.tick()
        yield plane


def probe_of(plane: ControlPlane, worker: str = "a") -> Any:
    return plane.desired(worker, after=0).json().get("probe")


def report(probe: str, canary: str, /, **changes: Any) -> dict[str, Any]:
    return {
        "incarnation": "life-of-a",
        "probe": probe,
        "canary": canary,
        "lengths": [{"length": length, "retained_bytes": 0} for length in LENGTHS],
        "flag_bytes_before": 0,
        "rollback_ms": 40.0,
        "flag_bytes_left": 0,
        **changes,
    }


def test_one_worker_is_asked_and_takes_no_viewer_meanwhile(asked: ControlPlane) -> None:
    state = asked.desired("a", after=0).json()
    assert state["probe"]["lengths"] == LENGTHS
    assert state["probe"]["flags"] == {FLAG: "fused_steady"}
    assert (state["flags"], state["is_admitting"]) == ({FLAG: "nccl"}, False)
    assert "experiment" not in state
    assert "lease_s" not in state
    other = asked.desired("b", after=0).json()
    assert (other.get("probe"), other["is_admitting"]) == (None, True)


def test_a_report_that_passes_brings_viewers_and_a_repeat_changes_nothing(
    asked: ControlPlane,
) -> None:
    probe = probe_of(asked)
    told = report(probe["id"], probe["canary"])
    asked.as_worker(
        "a", "effective", **effective("a", asked.desired("a", after=0).json()["generation"])
    )
    assert asked.as_worker("a", "probes", **told).status_code == 204
    assert asked.num_nudges > 0
    asked.tick()
    assert asked.get("/v1/canaries/fused-allreduce-1")["canary"]["phase"] == "progressing"
    again = {**told, "rollback_ms": 9e6}
    assert asked.as_worker("a", "probes", **again).status_code == 204
    asked.tick()
    assert asked.get("/v1/canaries/fused-allreduce-1")["canary"]["phase"] == "progressing"
    assert asked.desired("a", after=0).json()["is_admitting"] is True


def test_a_report_that_fails_is_shown_with_its_numbers(asked: ControlPlane) -> None:
    probe = probe_of(asked)
    kept = [{"length": length, "retained_bytes": 16 * 2**20} for length in LENGTHS[:2]]
    asked.as_worker("a", "probes", **report(probe["id"], probe["canary"], lengths=kept))
    asked.tick()
    shown = asked.get("/v1/canaries/fused-allreduce-1")
    assert shown["canary"]["phase"] == "rolling_back"
    assert "keeps 16.0 MiB for first-forward length 8, 1MiB allowed" in shown["canary"]["reason"]
    assert "probe" not in asked.desired("a", after=0).json()


def test_while_it_is_probed_the_gates_say_what_is_missing(asked: ControlPlane) -> None:
    gates = asked.get("/v1/canaries/fused-allreduce-1")["gates"]
    assert [(one["gate"], one["verdict"]) for one in gates] == [
        ("hard_stops", "passing"),
        ("preflight", "unmeasured"),
    ]


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"probe": "other-1"}, 422),
        ({"canary": "none"}, 422),
        ({"incarnation": "life-of-nobody"}, None),
        ({"lengths": [{"length": -1, "retained_bytes": 0}]}, 422),
        ({"rollback_ms": -1}, 422),
        ({"flag_bytes_before": 2**64}, 422),
        ({"lengths": [{"length": 1, "retained_bytes": 0}] * 65}, 422),
        ({"fault": "bored"}, 422),
    ],
)
def test_what_was_not_asked_or_cannot_be_is_refused(
    asked: ControlPlane, changes: dict[str, Any], status: int | None
) -> None:
    probe = probe_of(asked)
    answer = asked.as_worker("a", "probes", **report(probe["id"], probe["canary"], **changes))
    assert answer.status_code == status or (status is None and answer.status_code in (404, 409))
    asked.tick()
    assert asked.get("/v1/canaries/fused-allreduce-1")["canary"]["phase"] == "preflight"


def test_only_the_worker_itself_may_answer(asked: ControlPlane) -> None:
    probe = probe_of(asked)
    told = report(probe["id"], probe["canary"])
    assert asked.as_worker("a", "probes", by="b", **told).status_code == 403
    path = f"/v1/fleets/{FLEET}/workers/a/probes"
    viewer = bearer(asked.token("viewer"))
    assert asked.client.post(path, headers=viewer, json=told).status_code == 403


def test_without_a_report_in_time_it_is_held_as_unmeasured(
    asked: ControlPlane, clock: FakeClock
) -> None:
    clock.advance(seconds=31)
    asked.tick()
    shown = asked.get("/v1/canaries/fused-allreduce-1")["canary"]
    assert shown["phase"] == "held"
    assert "no result within 30 s" in shown["reason"]
    assert asked.desired("a", after=0).json()["is_admitting"] is True
