"""`steadyframe status`: one screen, and an exit code that a pager may go by."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from controlplane.cli import workers
from controlplane.cli.exits import Exit
from controlplane.domain.fleet import REACHABLE_WITHIN
from tests.cli.fake import FakeControlPlane, run
from tests.cli.test_reading import WORKER

NOW = datetime(2026, 11, 30, 20, 0, tzinfo=UTC)
FLEET: dict[str, Any] = {"name": "live", "mode": "enforce", "promoted": {}, "stopped_reason": None}
SAMPLE = {**FLEET, "name": "sample", "mode": "observe", "is_sample": True}
CANARY = {"name": "fused-allreduce-3", "fleet": "live", "phase": "baking", "reason": "step passed"}


def plane(
    *workers: dict[str, Any], phase: str = "baking", fleet: dict[str, Any] = FLEET
) -> FakeControlPlane:
    one = {**CANARY, "phase": phase}
    return FakeControlPlane(
        {
            ("GET", "/readyz"): {"status": "ready"},
            ("GET", "/v1/fleets"): {"items": [fleet, SAMPLE]},
            ("GET", "/v1/fleets/live/workers"): {"items": list(workers)},
            ("GET", "/v1/fleets/sample/workers"): {"items": []},
            ("GET", "/v1/canaries"): {"items": [one, {**CANARY, "phase": "promoted"}]},
            ("GET", "/v1/canaries/fused-allreduce-3"): {"canary": one, "verdict": "passing"},
        }
    )


def worker(**changes: Any) -> dict[str, Any]:
    """One that was heard of now, whenever that is."""
    return {**WORKER, "last_seen_at": "9999-01-01T00:00:00+00:00", **changes}


def test_calm_is_zero_and_everything_is_on_one_screen() -> None:
    result = run(plane(worker()), "status")
    assert result.exit_code == Exit.OK, result.stdout
    for text in ("ready", "live", "enforce", "1 as wanted", "sample data", "baking", "passing"):
        assert text in result.stdout
    assert "nothing needs a person" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (plane(worker(is_quarantined=True)), "live/worker-a is quarantined"),
        (plane(worker(is_break_glass=True)), "live/worker-a is break-glass"),
        (plane(worker(trip={"reason": "nan"})), "live/worker-a is tripped: nan"),
        (plane(worker(last_seen_at="2020-01-01T00:00:00+00:00")), "live/worker-a is silent"),
        (plane(worker(), phase="held"), "fused-allreduce-3 is held"),
        (plane(worker(), fleet={**FLEET, "stopped_reason": "frozen"}), "is stopped: frozen"),
    ],
    ids=["quarantined", "break-glass", "tripped", "silent", "held", "stopped"],
)
def test_what_needs_a_person_is_said_and_ends_with_its_code(
    there: FakeControlPlane, told: str
) -> None:
    result = run(there, "status")
    assert result.exit_code == Exit.ATTENTION
    assert told in result.stdout
    assert told in json.loads(run(there, "status", "--json").stdout)["attention"][0]


def test_a_control_plane_that_judges_nothing_needs_a_person() -> None:
    there = plane(worker())
    there.problems = {("GET", "/readyz"): (503, {"status": "not ready"})}
    result = run(there, "status")
    assert result.exit_code == Exit.ATTENTION
    assert "not ready" in result.stdout


def test_a_server_that_is_away_is_no_calm() -> None:
    result = run(FakeControlPlane(error=httpx.ConnectError("refused")), "status")
    assert result.exit_code == Exit.SERVER_AWAY
    assert "steadyframe serve" in result.stderr


def test_a_stop_comes_with_what_ends_it() -> None:
    stopped = plane(worker(), fleet={**FLEET, "stopped_reason": "frozen"})
    assert "steadyframe lift live" in " ".join(run(stopped, "status").stdout.split())


def test_a_worker_is_silent_when_the_web_page_says_so() -> None:
    """Two surfaces that disagree make whoever was woken look for a third."""
    seen = NOW - REACHABLE_WITHIN
    one = worker(last_seen_at=seen.isoformat())
    assert workers.state_text(one, now=NOW) == "as wanted"
    later = NOW + timedelta(microseconds=1)
    assert workers.state_of(one, now=later) == "silent"
    assert workers.state_text(one, now=later) == f"silent since {seen:%H:%M:%S}Z"
    assert (
        workers.state_text(one, now=NOW + timedelta(days=2))
        == f"silent since {seen:%Y-%m-%d %H:%M:%S}Z"
    )


@pytest.mark.parametrize("seen", [None, "", "soon", "2026-11-30T20:00:00"])
def test_a_worker_whose_last_sign_cannot_be_read_is_silent(seen: str | None) -> None:
    assert workers.state_text(worker(last_seen_at=seen), now=NOW) == "silent"
