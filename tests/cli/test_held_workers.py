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


def plane(*workers: dict[str, Any], fleet: dict[str, Any] = FLEET) -> FakeControlPlane:
    path = "/v1/fleets/live/workers/worker-a"
    reason = {"flag": "f", "variant": "nccl", "layer": "pin", "reason": "pinned by ada"}
    return FakeControlPlane(
        {
            ("GET", "/v1/fleets/live"): fleet,
            ("GET", "/v1/fleets/live/workers"): {"items": list(workers)},
            ("GET", path): workers[0],
            ("GET", f"{path}/explain"): {"reasons": [reason]},
        }
    )


def worker(**changes: Any) -> dict[str, Any]:
    """One that was heard of now, whenever that is."""
    heard = {"last_seen_at": "9999-01-01T00:00:00+00:00"}
    return {**WORKER, **FREE, **heard, "is_break_glass": False, **changes}


SILENT = {"last_seen_at": "2020-01-02T03:04:05+00:00"}
LOOKS = [
    ("fleet", "show", "live"),
    ("worker", "list", "live"),
    ("worker", "show", "live", "worker-a"),
]


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_a_silent_worker_is_shown_as_silent_and_since_when(command: tuple[str, ...]) -> None:
    """What it said last is no news of it."""
    there = plane(worker(**SILENT))
    said = " ".join(run(there, *command).stdout.split())
    assert "silent" in said
    assert "since 2020-01-02" in said
    assert "03:04:05Z" in said
    assert "as wanted" not in said
    assert "silent" not in run(plane(worker()), *command).stdout


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_a_stopped_line_comes_with_what_ends_it(command: tuple[str, ...]) -> None:
    """Every worker of the fleet is held by it, and looks as wanted."""
    stopped = plane(worker(), fleet={**FLEET, "stopped_reason": "frozen"})
    assert "line is stopped; to end it: steadyframe lift live" in " ".join(
        run(stopped, *command).stdout.split()
    )
    assert "steadyframe lift" not in run(plane(worker()), *command).stdout


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
