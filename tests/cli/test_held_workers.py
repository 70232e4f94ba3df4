"""What holds a worker is named wherever one looks, with the command that ends it."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from controlplane.cli import upkeep
from tests.cli.fake import FakeControlPlane, run
from tests.cli.hostile import HELD
from tests.cli.test_reading import WORKER

NOW = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
FLEET: dict[str, Any] = {"name": "live", "mode": "enforce", "promoted": {}, "stopped_reason": None}
FREE: dict[str, Any] = {"trip": None, "pins": [], "is_cordoned": False, "is_quarantined": False}
ENDS = {
    "trip": "steadyframe worker restore live worker-a",
    "is_quarantined": "steadyframe worker restore live worker-a",
    "is_cordoned": "steadyframe worker uncordon live worker-a",
    "is_break_glass": "steadyframe-worker local clear",
    "pins": "steadyframe unpin live worker-a fused_allreduce",
}
KINDS = {
    "trip": "tripped",
    "is_quarantined": "quarantined",
    "is_cordoned": "cordoned",
    "is_break_glass": "break-glass",
    "pins": "pinned",
}


def plane(*workers: dict[str, Any]) -> FakeControlPlane:
    path = "/v1/fleets/live/workers/worker-a"
    reason = {"flag": "f", "variant": "nccl", "layer": "pin", "reason": "pinned by ada"}
    return FakeControlPlane(
        {
            ("GET", "/v1/fleets/live"): FLEET,
            ("GET", "/v1/fleets/live/workers"): {"items": list(workers)},
            ("GET", path): workers[0],
            ("GET", f"{path}/explain"): {"reasons": [reason]},
        }
    )


def worker(**changes: Any) -> dict[str, Any]:
    return {**WORKER, **FREE, "is_break_glass": False, **changes}


@pytest.mark.parametrize("held", list(ENDS))
@pytest.mark.parametrize(
    "command",
    [
        ("fleet", "show", "live"),
        ("worker", "list", "live"),
        ("worker", "show", "live", "worker-a"),
        ("worker", "explain", "live", "worker-a"),
    ],
    ids=" ".join,
)
def test_what_holds_a_worker_comes_with_what_ends_it(held: str, command: tuple[str, ...]) -> None:
    there = plane(worker(**{held: HELD[held]}))
    said = " ".join(run(there, *command).stdout.split())
    assert ENDS[held] in said
    assert not [end for name, end in ENDS.items() if end in said and end != ENDS[held]], held


def test_a_fleet_counts_and_names_the_workers_that_are_held() -> None:
    """A fleet that looks well and has three workers at their fallback is not well."""
    workers = [worker(**{held: HELD[held]}, name=f"w-{held}") for held in ENDS]
    there = plane(*workers, worker(name="w-free"), worker(name="w-too", is_cordoned=True))
    shown = run(there, "fleet", "show", "live").stdout
    for held, kind in KINDS.items():
        assert any(
            line.split()[:2] == [kind, "2:" if kind == "cordoned" else "1:"] and f"w-{held}" in line
            for line in shown.splitlines()
        ), kind
    assert "w-free" not in shown
    held = json.loads(run(there, "fleet", "show", "live", "--json").stdout)["held"]
    assert held["cordoned"] == ["w-is_cordoned", "w-too"]


def test_a_pin_says_until_when_by_whom_and_why() -> None:
    there = plane(worker(pins=HELD["pins"]))
    for command in (("worker", "list", "live"), ("worker", "show", "live", "worker-a")):
        said = " ".join(run(there, *command).stdout.split())
        assert "fused_allreduce=nccl until 9999-11-30 19:08:36Z by token:ada: compare" in said


def test_a_pin_that_has_run_out_holds_nothing() -> None:
    over = {**HELD["pins"][0], "expires_at": NOW.isoformat()}
    assert upkeep.kinds_of(worker(pins=[over]), now=NOW) == ()
    assert upkeep.notes(worker(pins=[over]), fleet="live", now=NOW) == []


def test_what_a_flag_keeps_is_in_mebibytes() -> None:
    there = plane(worker(flag_bytes={"fused_allreduce": 16 << 20}))
    assert "fused_allreduce=16.0 MiB" in run(there, "worker", "show", "live", "worker-a").stdout


def test_tables_and_notes_fit_eighty_columns() -> None:
    there = plane(worker(**{held: HELD[held] for held in ENDS}))
    for command in (("fleet", "show", "live"), ("worker", "list", "live")):
        lines = run(there, *command).stdout.splitlines()
        assert max(len(line) for line in lines) <= 80
