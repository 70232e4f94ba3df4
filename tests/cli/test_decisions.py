"""`decision verify`: what a person reads, what a script gets, and the exit code of each outcome."""

import json
from typing import Any

import pytest

from tests.cli.fake import FakeControlPlane, run

CANARY = "fused-allreduce-3"
LIST = ("GET", f"/v1/canaries/{CANARY}/decisions")


def verified(number: int, result: str, **changes: Any) -> dict[str, Any]:
    return {
        "decision": f"decision-{number}",
        "canary": CANARY,
        "at": "2026-11-30T19:08:36+00:00",
        "result": result,
        "said": f"{result}: as it is",
        "differences": [],
        "software": "0.1.0",
        **changes,
    }


def plane_of(*results: str) -> FakeControlPlane:
    """A control plane with a decision for each of `results`, newest first."""
    routes: dict[tuple[str, str], Any] = {
        ("POST", f"/v1/decisions/decision-{n}/verify"): verified(n, result)
        for n, result in enumerate(results)
    }
    items = [{"id": f"decision-{n}"} for n in range(len(results))]
    routes[LIST] = {"items": items, "next_cursor": None}
    return FakeControlPlane(routes)


@pytest.mark.parametrize(
    ("results", "code"),
    [
        (("equal", "equal"), 0),
        (("equal", "not_recomputable"), 15),
        (("not_recomputable", "differs", "equal"), 14),
        (("something new",), 14),
    ],
)
def test_the_worst_of_all_decides_how_it_ends(results: tuple[str, ...], code: int) -> None:
    """A script of an auditor branches on it; what cannot be judged again is no pass."""
    result = run(plane_of(*results), "decision", "verify", "--canary", CANARY, "--all")
    assert result.exit_code == code, result.output
    assert result.stdout.count("decision-") == len(results)


def test_of_a_canary_the_newest_is_verified_unless_all_are_asked_for() -> None:
    plane = plane_of("equal", "differs")
    assert run(plane, "decision", "verify", "--canary", CANARY).exit_code == 0
    assert [call.path for call in plane.made] == ["/v1/decisions/decision-0/verify"]


def test_each_difference_is_shown_by_its_place_to_the_last_digit() -> None:
    difference = {"where": "gates.floor.value", "recorded": 24.0, "recomputed": 23.999999999999996}
    plane = FakeControlPlane(
        {("POST", "/v1/decisions/d1/verify"): verified(1, "differs", differences=[difference])}
    )
    result = run(plane, "decision", "verify", "d1")
    assert result.exit_code == 14
    for text in ("gates.floor.value", "24.0", "23.999999999999996"):
        assert text in result.stdout


def test_json_is_the_answers_and_nothing_else() -> None:
    result = run(plane_of("differs"), "decision", "verify", "decision-0", "--json")
    assert json.loads(result.stdout) == [verified(0, "differs")]
    assert result.exit_code == 14


@pytest.mark.parametrize(
    "arguments", [[], ["d1", "--canary", CANARY], ["d1", "--all"], ["../tokens"]]
)
def test_what_is_not_one_question_is_refused_before_anything_is_sent(arguments: list[str]) -> None:
    plane = plane_of("equal")
    assert run(plane, "decision", "verify", *arguments).exit_code in (1, 2)
    assert not plane.calls


def test_a_canary_on_which_nothing_was_decided_says_so() -> None:
    """No decision is not the same as decisions that are all equal."""
    result = run(plane_of(), "decision", "verify", "--canary", CANARY)
    assert result.exit_code == 4
    assert "canary explain" in result.stderr


def test_no_text_of_a_record_reaches_the_terminal_raw() -> None:
    """What was tampered with may hold anything."""
    evil = "evil\x1b[2J\x9b\nerror: forged"
    difference = {"where": evil, "recorded": evil, "recomputed": {evil: [evil]}}
    answer = verified(1, "differs", said=evil, differences=[difference])
    plane = FakeControlPlane({("POST", "/v1/decisions/d1/verify"): answer})
    result = run(plane, "decision", "verify", "d1")
    assert result.exit_code == 14
    assert not any(mark in result.stdout for mark in ("\x1b", "\x9b", "\nerror: forged"))
