"""A canary that has to wait is not called started."""

from typing import Any

from tests.cli.fake import FakeControlPlane, run

START = ("canary", "start", "live", "fused_allreduce", "fused_all", "--policy", "demo")


def started(**answer: Any) -> str:
    plane = FakeControlPlane({("POST", "/v1/canaries"): {"name": "c-3", "fleet": "live", **answer}})
    result = run(plane, *START, "--reason", "x", "--yes")
    return " ".join(result.stderr.split())


def test_one_whose_turn_it_is_is_started() -> None:
    assert "started c-3" in started(ahead=[])


def test_one_that_waits_says_for_whom_and_at_which_place() -> None:
    said = started(ahead=["c-1", "c-2"])
    assert "c-3 waits for c-1, c-2: it is number 3 in the queue of fleet live" in said
    assert "started" not in said
    assert "steadyframe canary watch c-3" in said
