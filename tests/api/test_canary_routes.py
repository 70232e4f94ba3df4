"""A canary begins only where it can be judged; people watch it and ask things of it."""

from typing import Any

import httpx
import pytest

from tests.api.control_plane import FLAG, FLEET, STACK, ControlPlane


def _start(plane: ControlPlane, **changes: Any) -> httpx.Response:
    wanted = {"fleet": FLEET, "flag": FLAG, "variant": "fused_steady", "policy": "demo"}
    return plane.post("/v1/canaries", **{**wanted, **changes})


def _started(plane: ControlPlane, **changes: Any) -> str:
    answer = _start(plane, **changes)
    assert answer.status_code == 201, answer.text
    name: str = answer.json()["name"]
    return name


def test_a_canary_is_pending_until_a_tick_takes_it_up(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2", "w-3")

    name = _started(plane)
    before = plane.get(f"/v1/canaries/{name}")["canary"]["phase"]
    plane.tick()
    plane.tick()
    shown = plane.get(f"/v1/canaries/{name}")

    assert name == "fused-allreduce-1"
    assert (before, shown["canary"]["phase"]) == ("pending", "progressing")
    assert [step["name"] for step in shown["steps"]] == ["first", "again"]
    assert [one["worker"] for one in shown["workers"]] == ["w-1"]
    events = [one["event"] for one in plane.get(f"/v1/canaries/{name}/transitions")["items"]]
    assert events == ["preflight_passed", "started"]


def test_the_salt_is_nobodys_business(sqlite_plane: ControlPlane) -> None:
    """Whoever knows it can choose the arm of a session."""
    sqlite_plane.fleet("w-1", "w-2")
    name = _started(sqlite_plane)

    assert "salt" not in str(sqlite_plane.get(f"/v1/canaries/{name}"))
    assert "salt" not in str(sqlite_plane.get("/v1/canaries"))


@pytest.mark.parametrize(
    ("changes", "key", "allowed"),
    [
        ({"variant": "fussed"}, FLAG, "fused_steady"),
        ({"hardware": "h100x4"}, "hardware", "cpu"),
        ({"stack": "f0"}, "flag", "no flag and no variant beside a stack"),
        ({"flag": None}, "flag", "or a stack"),
        ({"variant": None}, "variant", "or a stack"),
        ({"flag": None, "variant": None, "stack": "f0"}, "stack", "one that a worker of the fleet"),
    ],
)
def test_a_word_that_does_not_fit_is_refused_with_those_that_do(
    sqlite_plane: ControlPlane, changes: dict[str, str], key: str, allowed: str
) -> None:
    sqlite_plane.fleet("w-1", "w-2")

    answer = _start(sqlite_plane, **changes)

    assert answer.status_code == 422
    assert answer.json()["key"] == key
    assert allowed in answer.json()["allowed"]


@pytest.mark.parametrize(
    ("changes", "there"),
    [
        ({"flag": "nothing"}, FLAG),
        ({"policy": "nothing"}, "demo"),
        ({"fleet": "nowhere"}, FLEET),
    ],
)
def test_a_name_that_is_not_there_is_not_found_and_those_that_are_told(
    sqlite_plane: ControlPlane, changes: dict[str, str], there: str
) -> None:
    sqlite_plane.fleet("w-1", "w-2")

    answer = _start(sqlite_plane, **changes)

    assert answer.status_code == 404
    assert there in answer.json()["detail"]


def test_a_fleet_that_only_observes_runs_no_canary(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2", mode="observe")

    answer = _start(sqlite_plane)

    assert answer.status_code == 409
    assert "enforce" in answer.json()["detail"]


def test_what_runs_already_needs_no_canary(sqlite_plane: ControlPlane) -> None:
    """It is refused as what it is, not as a word that is misspelt."""
    sqlite_plane.fleet("w-1", "w-2")

    answer = _start(sqlite_plane, variant="nccl")

    assert answer.status_code == 409
    assert answer.json()["detail"] == f"nccl is what {FLEET} runs already"
    assert "allowed" not in answer.json()


def test_a_stopped_line_runs_no_canary(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2")
    sqlite_plane.done(f"/v1/fleets/{FLEET}/stop-the-line")

    assert "lift it first" in _start(sqlite_plane).json()["detail"]


def test_without_a_control_there_is_no_canary(plane: ControlPlane) -> None:
    """One worker has nothing to be compared with."""
    plane.fleet("w-1")
    plane.join("w-2", capabilities={FLAG: ["nccl"]})

    answer = _start(plane)

    assert answer.status_code == 409
    assert "1 of 2 workers" in answer.json()["detail"]


@pytest.mark.parametrize("what", ["cordon", "pin", "silence", "new"])
def test_workers_that_cannot_take_part_do_not_count(sqlite_plane: ControlPlane, what: str) -> None:
    sqlite_plane.fleet("w-1", *(["w-2"] if what != "new" else []))
    if what == "new":
        sqlite_plane.register("w-2")  # its ranks have not said yet what they run
    elif what == "cordon":
        sqlite_plane.done(f"/v1/fleets/{FLEET}/workers/w-2/cordon")
    elif what == "pin":
        path = f"/v1/fleets/{FLEET}/workers/w-2/pins"
        sqlite_plane.done(path, flag=FLAG, variant="nccl")
    else:
        sqlite_plane.clock.advance(minutes=1)
        sqlite_plane.desired("w-1", after=0)

    assert _start(sqlite_plane).status_code == 409


def test_of_several_hardware_profiles_one_must_be_named(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    for worker in ("w-3", "w-4"):
        plane.join(worker, hardware="h100x4")

    vague = _start(plane)
    named = _start(plane, hardware="h100x4")

    assert (vague.status_code, vague.json()["allowed"]) == (422, "cpu, h100x4")
    assert named.json()["hardware"] == "h100x4"


def test_only_workers_of_one_stack_are_compared(plane: ControlPlane) -> None:
    """A new driver on half of the fleet is a difference of its own."""
    plane.fleet("w-1", "w-2")
    plane.join("w-3", stack={**STACK, "driver": "999"})

    effects = _start(plane).json()["effects"]

    assert "2 workers may take part" in effects[0]


def test_a_second_canary_waits_for_the_first(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    first = _started(plane)

    second = _start(plane, variant="fused_all")
    same = _start(plane)

    assert second.status_code == 201
    assert f"waits for {first}" in second.json()["effects"][1]
    assert same.status_code == 409


def test_a_request_is_taken_and_the_next_tick_answers(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    name = _started(plane)

    taken = plane.post(f"/v1/canaries/{name}/requests", kind="abort", reason="enough")
    plane.tick()
    shown = plane.get(f"/v1/canaries/{name}")
    late = plane.post(f"/v1/canaries/{name}/requests", kind="resume")

    assert taken.status_code == 202
    assert shown["canary"]["phase"] == "cancelled"
    (request,) = shown["requests"]
    assert (request["kind"], request["answer"], request["reason"]) == ("abort", "done", "enough")
    assert late.status_code == 409


def test_only_known_requests_are_taken(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2")
    name = _started(sqlite_plane)

    answer = sqlite_plane.post(f"/v1/canaries/{name}/requests", kind="skip")

    assert (answer.status_code, answer.json()["key"]) == (422, "kind")
    assert "'promote'" in answer.json()["allowed"]


def test_canaries_are_listed_newest_first_page_by_page(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    names = [_started(plane), _started(plane, variant="fused_all")]

    first = plane.get(f"/v1/canaries?fleet={FLEET}&limit=1")
    second = plane.get(f"/v1/canaries?limit=1&cursor={first['next_cursor']}")

    assert [one["name"] for one in first["items"] + second["items"]] == names[::-1]
    assert second["next_cursor"] is None


def test_another_fleets_canary_is_closed_to_a_fleets_token(plane: ControlPlane) -> None:
    plane.fleet("w-1", "w-2")
    name = _started(plane)
    plane.done("/v1/fleets", name="other")
    token = plane.token("operator", fleet="other")

    assert plane.post(f"/v1/canaries/{name}/requests", token=token, kind="abort").status_code == 403
    assert _start(plane, token=token).status_code == 403
    for tail in ("", "/decisions", "/transitions"):
        headers = {"Authorization": f"Bearer {token}"}
        path = f"/v1/canaries/{name}{tail}"
        assert plane.client.get(path, headers=headers).status_code == 403
    assert plane.get("/v1/canaries", token=token)["items"] == []
