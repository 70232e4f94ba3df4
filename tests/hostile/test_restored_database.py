"""A database that was restored from yesterday knows less than the workers do."""

import pytest

from tests.api.control_plane import FLAG, FLEET, ControlPlane, effective

SEEN = 57  # a generation from after the backup


def test_a_worker_that_is_ahead_is_told_again_under_a_number_it_takes(plane: ControlPlane) -> None:
    """It refuses what is older than it has seen, and would otherwise ask in a loop for ever."""
    plane.fleet("w-1")

    state = plane.desired("w-1", after=SEEN).json()

    assert state["generation"] > SEEN
    assert state["flags"] == {FLAG: "nccl"}
    assert plane.desired("w-1", after=state["generation"]).json() == state


def test_a_worker_that_says_it_runs_a_number_never_given_is_overtaken(plane: ControlPlane) -> None:
    """Otherwise all that it is told from then on is old to it."""
    plane.fleet("w-1")

    plane.as_worker("w-1", "effective", **effective("w-1", SEEN))
    plane.tick()

    assert plane.desired("w-1", after=0).json()["generation"] > SEEN


def test_a_worker_ahead_that_registers_is_overtaken_too(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    state = plane.register("w-1", incarnation="second", generation=SEEN).json()

    assert state["generation"] > SEEN


@pytest.mark.parametrize("call", ["desired", "effective"])
def test_a_life_that_was_forgotten_is_asked_to_register(plane: ControlPlane, call: str) -> None:
    """Told that it was superseded, the worker would stop for good, and the whole fleet with it."""
    plane.fleet("w-1")

    if call == "desired":
        answer = plane.desired("w-1", after=SEEN, incarnation="after-the-backup")
    else:
        body = effective("w-1", SEEN, incarnation="after-the-backup")
        answer = plane.as_worker("w-1", "effective", **body)

    assert answer.status_code == 404, answer.text
    assert plane.register("w-1", incarnation="after-the-backup").status_code == 200


@pytest.mark.parametrize("generation", [2**62, 2**63 - 1])
def test_a_generation_that_leaves_no_room_is_refused(plane: ControlPlane, generation: int) -> None:
    plane.fleet("w-1")

    answer = plane.desired("w-1", after=generation)

    assert (answer.status_code, answer.json()["key"]) == (422, "generation")
    assert plane.get(f"/v1/fleets/{FLEET}/workers/w-1")["desired_generation"] == 1
