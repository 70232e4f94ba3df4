"""What is measured of the picture: reported once, told what it does, and refused if it is none."""

import json
from typing import Any

import pytest

from tests.api.control_plane import FLAG, FLEET, ControlPlane, bearer
from tests.domain import build

NAME = "fused-allreduce-1"
PATH = f"/v1/canaries/{NAME}/quality"
QUALITY = {"gate": "quality", "metric": "quality", "measure": "vmaf", "at_least": 90}
FRESHNESS = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
GOOD: dict[str, Any] = {"measure": "vmaf", "value": 93.5, "num_samples": 200}
BAD: dict[str, Any] = {**GOOD, "value": 71.25}


def started(plane: ControlPlane, *gates: dict[str, Any], num_ticks: int = 2) -> None:
    """A canary that exposes w-1 after two ticks, under a policy with these gates."""
    plane.fleet("w-1", "w-2")
    document = build.document(name="picture", gates=[FRESHNESS, *gates])
    plane.done("/v1/policies", document=json.dumps(document))
    plane.done("/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="picture")
    for _ in range(num_ticks):
        plane.tick()


def gate(plane: ControlPlane) -> tuple[str, str]:
    """Verdict and reason of the gate now."""
    shown = plane.get(f"/v1/canaries/{NAME}")["gates"]
    (found,) = [one for one in shown if one["gate"] == "quality"]
    return found["verdict"], found["reason"]


def phase(plane: ControlPlane) -> str:
    found: str = plane.get(f"/v1/canaries/{NAME}")["canary"]["phase"]
    return found


def test_a_report_is_judged_and_the_newest_counts(plane: ControlPlane) -> None:
    started(plane, QUALITY)
    assert gate(plane) == ("unmeasured", "no vmaf has been reported for fused_steady")

    made = plane.done(PATH, **GOOD, reason="nightly run 4711")

    assert gate(plane) == ("passing", "vmaf 93.5 over 200 samples, 90 asked for")
    assert (made["canary"], made["value"], made["reason"]) == (NAME, 93.5, "nightly run 4711")
    assert made["effects"][0] == (
        "passes the gate quality: vmaf 93.5 over 200 samples, 90 asked for"
    )
    assert "sample" in made["effects"][1]
    plane.clock.advance(seconds=1)
    plane.done(PATH, **BAD)
    assert gate(plane)[0] == "failing"
    listed = plane.get(PATH)["items"]
    assert [one["value"] for one in listed] == [71.25, 93.5]
    assert {key: made[key] for key in listed[1]} == listed[1]


def test_a_bad_report_says_that_it_rolls_back_and_the_next_tick_does(plane: ControlPlane) -> None:
    started(plane, QUALITY)
    dry = plane.client.post(
        f"{PATH}?dry_run=true", headers=plane.admin, json={**BAD, "reason": "a test"}
    )
    plane.tick()
    assert (phase(plane), plane.get(PATH)["items"]) == ("progressing", [])

    made = plane.done(PATH, **BAD)
    plane.tick()

    assert dry.json()["effects"] == made["effects"]
    first, second, third = made["effects"]
    assert first.startswith("fails the gate quality (vmaf 71.25 over 200 samples, 90 asked for)")
    assert first.endswith(f"and rolls {NAME} back")
    assert second == f"w-1: {FLAG} fused_steady -> nccl"
    assert third.startswith(f"{FLAG}=fused_steady is disqualified on cpu")
    assert phase(plane) == "rolling_back"
    assert plane.num_nudges > 0


def test_before_anybody_is_exposed_it_is_told_when_it_counts(sqlite_plane: ControlPlane) -> None:
    started(sqlite_plane, QUALITY, num_ticks=0)

    (bad,) = sqlite_plane.done(PATH, **BAD)["effects"]
    first, second = sqlite_plane.done(PATH, **GOOD)["effects"]

    assert "is pending and is rolled back once its workers are exposed" in bad
    assert first.startswith("passes")
    assert "counts once its workers are exposed" in second
    sqlite_plane.tick()
    sqlite_plane.tick()
    assert (phase(sqlite_plane), gate(sqlite_plane)[0]) == ("progressing", "passing")


def test_on_its_way_back_nothing_changes(sqlite_plane: ControlPlane) -> None:
    started(sqlite_plane, QUALITY)
    sqlite_plane.done(PATH, **BAD)
    sqlite_plane.tick()

    (told,) = sqlite_plane.done(PATH, **BAD)["effects"]

    assert "on its way back already" in told


def test_an_abort_that_was_asked_for_disqualifies_nothing(sqlite_plane: ControlPlane) -> None:
    """What a person ended says nothing of the variant, and the preview must not say it does."""
    started(sqlite_plane, QUALITY)
    sqlite_plane.done(f"/v1/canaries/{NAME}/requests", kind="abort")

    effects = sqlite_plane.done(PATH, **BAD)["effects"]

    assert not [one for one in effects if "disqualified" in one]


@pytest.mark.parametrize(
    ("gates", "asked"), [((), "has no gate quality"), ((QUALITY,), "asks for vmaf")]
)
def test_what_no_gate_judges_is_kept_and_said_to_be_so(
    sqlite_plane: ControlPlane, gates: tuple[dict[str, Any], ...], asked: str
) -> None:
    """A misspelt measure would else look reported, and the canary be held for want of it."""
    started(sqlite_plane, *gates)

    (told,) = sqlite_plane.done(PATH, **{**GOOD, "measure": "vmav"})["effects"]

    assert told.startswith("vmav 93.5 is kept, and nothing judges it")
    assert told.endswith(asked)
    assert len(sqlite_plane.get(PATH)["items"]) == 1


def test_a_canary_that_is_over_takes_no_report_and_says_why(plane: ControlPlane) -> None:
    started(plane, QUALITY, num_ticks=0)
    plane.done(f"/v1/canaries/{NAME}/requests", kind="abort", reason="seen enough")
    plane.tick()

    answer = plane.post(PATH, **GOOD)

    assert answer.status_code == 409
    assert f"{NAME} is cancelled (seen enough)" in answer.json()["detail"]
    assert plane.get(PATH)["items"] == []


def test_a_report_is_kept_once_under_its_key_and_is_in_the_audit_log(plane: ControlPlane) -> None:
    started(plane, QUALITY)

    answers = [plane.post(PATH, key="run-4711", **GOOD).json() for _ in range(3)]
    other = plane.post(PATH, key="run-4711", **BAD)

    assert answers[0] == answers[1] == answers[2]
    assert other.status_code == 409
    assert len(plane.get(PATH)["items"]) == 1
    row = plane.get("/v1/audit")["items"][0]
    assert (row["action"], row["target"]) == ("canary.quality_reported", NAME)
    assert {key: row["detail"][key] for key in GOOD} == GOOD


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(("value", text) for text in ("NaN", "Infinity", "-Infinity", "1e400", "-1e7")),
        *(("value", text) for text in ("1" * 400, "true", "null", '"93.5"', "[]", "1000001")),
        *(("num_samples", text) for text in ("0", "-1", "1.5", "true", "1" * 400, "null", "2e2")),
        *(("measure", text) for text in ('"V maf"', '""', "1", "null", f'"{"a" * 64}"')),
    ],
)
def test_what_is_no_measurement_is_refused_by_key_value_and_what_is_allowed(
    sqlite_plane: ControlPlane, key: str, text: str
) -> None:
    started(sqlite_plane, QUALITY)
    fields = {**{name: json.dumps(one) for name, one in GOOD.items()}, "reason": '"x"', key: text}
    body = "{" + ", ".join(f'"{name}": {one}' for name, one in fields.items()) + "}"
    headers = {**sqlite_plane.admin, "Content-Type": "application/json"}

    answer = sqlite_plane.client.post(PATH, headers=headers, content=body.encode())

    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert problem["key"] == key
    assert "value" in problem
    assert problem["allowed"]
    assert sqlite_plane.get(PATH)["items"] == []
    assert gate(sqlite_plane)[0] == "unmeasured"


def test_operators_report_and_viewers_read(plane: ControlPlane) -> None:
    started(plane, QUALITY)
    plane.done("/v1/fleets", name="other")
    viewer, operator = plane.token("viewer"), plane.token("operator")
    stranger = plane.token("operator", fleet="other")

    assert plane.post(PATH, token=operator, **GOOD).status_code == 201
    assert len(plane.get(PATH, token=viewer)["items"]) == 1
    for token in (viewer, stranger, plane.worker_token("w-1")):
        assert plane.post(PATH, token=token, **BAD).status_code == 403
    assert plane.client.get(PATH, headers=bearer(stranger)).status_code == 403
    assert plane.client.get(PATH).status_code == 401
    assert len(plane.get(PATH)["items"]) == 1


def test_reports_are_read_page_by_page_and_a_canary_that_is_not_there_is_not_found(
    sqlite_plane: ControlPlane,
) -> None:
    started(sqlite_plane, QUALITY)
    for value in (91.0, 92.0, 93.0):
        sqlite_plane.done(PATH, **{**GOOD, "value": value})

    first = sqlite_plane.get(f"{PATH}?limit=2")
    second = sqlite_plane.get(f"{PATH}?limit=2&cursor={first['next_cursor']}")

    assert [one["value"] for one in first["items"] + second["items"]] == [93.0, 92.0, 91.0]
    assert second["next_cursor"] is None
    none = "/v1/canaries/nothing-1/quality"
    assert sqlite_plane.client.get(none, headers=sqlite_plane.admin).status_code == 404
    assert sqlite_plane.post(none, **GOOD).status_code == 404
