"""`steadyframe policy lint` says what a policy would do, at a stated traffic or at a fleet's."""

import json
from pathlib import Path
from typing import Any

from controlplane.cli.exits import Exit
from tests.cli import fake
from tests.cli.fake import FakeControlPlane
from tests.domain import build
from tests.domain.build import POLICIES

LIVE = str(POLICIES / "live.yaml")
WEEK: dict[str, Any] = {
    "starts_on": "2026-11-23",
    "num_sessions": 14_000,
    "num_rated": 10_000,
    "num_slow": 70,
    "num_failed": 28,
}


def plane(*totals: dict[str, Any], num_workers: int = 200) -> FakeControlPlane:
    workers = [{"name": f"w{n}"} for n in range(num_workers)]
    return FakeControlPlane(
        routes={
            ("GET", "/v1/fleets/main/workers"): {"items": workers, "next_cursor": None},
            ("GET", "/v1/reports/weekly"): {"items": [], "totals": list(totals)},
        }
    )


def test_nobody_is_asked_for_what_holds_at_any_traffic() -> None:
    nobody = FakeControlPlane()
    result = fake.run(nobody, "policy", "lint", LIVE, environment={"STEADYFRAME_TOKEN": ""})
    assert result.exit_code == Exit.OK, result.output
    assert "of healthy canaries are ever" in " ".join(result.output.split())
    assert not nobody.calls


def test_a_policy_is_rehearsed_at_the_newest_week_of_a_fleet() -> None:
    old = {**WEEK, "starts_on": "2026-11-16", "num_slow": 700}
    result = fake.run(plane(WEEK, old), "policy", "lint", LIVE, "--fleet", "main", "--json")
    assert result.exit_code == Exit.OK, result.output
    told = json.loads(result.stdout)
    assert told["traffic"] == {
        "num_workers": 200,
        "sessions_per_day": 2000.0,
        "slow_rate": 0.007,
        "failure_rate": 0.002,
    }
    assert {answer["weight"] for answer in told["answers"]} <= {"told", "warning", "never"}
    assert any(answer["about"].startswith("steps.") for answer in told["answers"])


def test_a_fleet_without_traffic_says_what_to_state_instead() -> None:
    for nothing in (plane(), plane(WEEK, num_workers=0)):
        result = fake.run(nothing, "policy", "lint", LIVE, "--fleet", "main")
        assert result.exit_code == Exit.REFUSED
        assert "--sessions-per-day" in result.output


def test_half_a_traffic_is_refused() -> None:
    result = fake.run(FakeControlPlane(), "policy", "lint", LIVE, "--workers", "20")
    assert result.exit_code == Exit.USAGE
    assert "go together" in result.output


def test_the_same_policy_is_told_the_same_twice(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    step = {"name": "one", "workers": 5, "bake": "10s", "least_sessions": 2, "arm_share": "20%"}
    regression = {"gate": "regression", "metric": "evidence_of_harm"}
    freshness = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
    file.write_text(json.dumps(build.document(steps=[step], gates=[regression, freshness])))
    asked = ("policy", "lint", str(file), "--workers", "20", "--sessions-per-day", "5000")
    first, second = (fake.run(FakeControlPlane(), *asked) for _ in range(2))
    assert first.output == second.output
    assert "simulated healthy canaries were rolled back" in " ".join(first.output.split())
