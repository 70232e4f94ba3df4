"""`canary explain` prints what the control plane says, within eighty columns."""

import json
from typing import Any

from tests.cli.fake import FakeControlPlane, run

NAME = "fused-allreduce-3"
EXPLAINED: dict[str, Any] = {
    "canary": NAME,
    "phase": "rolled_back",
    "answer": f"{NAME} is over: rolled back to nccl, verified on 1 of 1 worker",
    "decided": "2026-11-30 19:08:36Z, gate failed, by steadyframe: floor: 1 of 2 sessions",
    "judged_at": "2026-11-30T19:08:36+00:00",
    "verdict": "failing",
    "gates": [
        {
            "gate": "floor",
            "verdict": "failing",
            "value": 22.71,
            "limit": 24.0,
            "margin": -1.29,
            "num_samples": 2,
            "reason": "1 of 2 sessions below 24 fps; lowest 22.71 on worker-a",
        },
        {
            "gate": "memory",
            "verdict": "unmeasured",
            "value": None,
            "limit": 1048576,
            "margin": None,
            "num_samples": 0,
            "reason": "no memory record of worker-a",
        },
    ],
    "evidence": {
        "num_blocks": 2,
        "value": 12.3456,
        "highest": 20.0,
        "p_value": 0.05,
        "attributed": "slow",
        "by_indicator": {"slow": 19.9, "failed": 1.0},
        "rates": [
            {
                "arm": "canary",
                "of": "slow",
                "num_bad": 3,
                "num": 400,
                "rate": 0.0075,
                "low": 0.00024553,
                "high": 0.027878023,
            },
            {
                "arm": "control",
                "of": "slow",
                "num_bad": 0,
                "num": 0,
                "rate": None,
                "low": 0.0,
                "high": 1.0,
            },
        ],
    },
    "needs": ["nothing: it is over"],
    "what_if": ["without session s-1 on worker-a no gate would have failed then"],
}
PATH = ("GET", f"/v1/canaries/{NAME}/explanation")


def test_the_answer_comes_first_and_every_number_is_there() -> None:
    result = run(FakeControlPlane({PATH: EXPLAINED}), "canary", "explain", NAME)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{NAME} is over")
    shown = " ".join(result.stdout.split())
    for text in ("22.71", "-1.29", "12.3", "0.05", "most of it from slow", "3 of 400, 0.75%"):
        assert text in shown
    for sentence in (*EXPLAINED["needs"], *EXPLAINED["what_if"], "between 0.02% and 2.79%"):
        assert sentence in shown
    assert "0 of 0, no rate" in shown
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_memory_is_in_mebibytes_and_all_else_as_it_is() -> None:
    """Eight digits are compared by nobody at night; the reason below has the same unit."""
    memory = {"value": 16 << 20, "limit": 1 << 20, "margin": -(15 << 20), "num_samples": 3}
    gates = [EXPLAINED["gates"][0], {**EXPLAINED["gates"][1], **memory}]
    shown = run(FakeControlPlane({PATH: {**EXPLAINED, "gates": gates}}), "canary", "explain", NAME)
    rows = {line.split()[0]: " ".join(line.split()) for line in shown.stdout.splitlines() if line}
    assert rows["memory"] == "memory unmeasured 16.0 MiB 1.0 MiB -15.0 MiB 3"
    assert rows["floor"] == "floor failing 22.71 24 -1.29 2"
    assert "1048576" not in shown.stdout


def test_a_canary_that_nobody_has_judged_is_explained_too() -> None:
    pending = {
        **EXPLAINED,
        "decided": None,
        "judged_at": None,
        "verdict": None,
        "gates": [],
        "evidence": None,
        "what_if": [],
    }
    result = run(FakeControlPlane({PATH: pending}), "canary", "explain", NAME)
    assert result.exit_code == 0
    assert "none judged yet" in result.stdout
    assert "None" not in result.stdout


def test_json_is_the_answer_as_it_came() -> None:
    result = run(FakeControlPlane({PATH: EXPLAINED}), "canary", "explain", NAME, "--json")
    assert json.loads(result.stdout) == EXPLAINED


def test_control_characters_of_a_reason_do_not_reach_the_terminal() -> None:
    """A worker's detail is in there."""
    hostile = {**EXPLAINED, "decided": "evil\x1b[2J", "needs": ["\x1b]0;x\x07"], "answer": "\x9bA"}
    result = run(FakeControlPlane({PATH: hostile}), "canary", "explain", NAME)
    assert not any(mark in result.stdout for mark in ("\x1b", "\x07", "\x9b"))
