"""`steadyframe report weekly`: rates with their intervals, side by side."""

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.exits import Exit
from tests.cli.fake import FakeControlPlane, run

TOTAL: dict[str, Any] = {
    "week": "2026-10-08",
    "fleet": "live",
    "is_sample": False,
    "num_sessions": 5000,
    "num_rated": 4990,
    "slow_rate": 0.007,
    "slow_interval": [0.005, 0.0097],
    "very_slow_rate": 0.0008,
    "very_slow_interval": [0.0003, 0.002],
    "failure_rate": 0.002,
    "failure_interval": [0.001, 0.0036],
}
ROW: dict[str, Any] = {
    **TOTAL,
    "hardware": "h100x4",
    "stack": "0123456789abcdef",
    "flags": {"fused_allreduce": "fused_steady"},
    "is_mixed": True,
    "is_synthetic": False,
    "is_imported": True,
}
PATH = ("GET", "/v1/reports/weekly")
CSV = ("GET", "/v1/reports/weekly.csv")


def report(**changes: Any) -> dict[str, Any]:
    return {"items": [{**ROW, **changes}], "totals": [{**TOTAL, **changes}], "next_cursor": None}


def test_rates_stand_side_by_side_with_their_intervals() -> None:
    """A rate without its numbers says nothing; slow and failed have different wholes."""
    result = run(FakeControlPlane({PATH: report()}), "report", "weekly")
    assert result.exit_code == Exit.OK
    for text in ("0.70 %", "(0.50-0.97)", "0.20 %", "fused_steady", "mixed", "imported", "5000"):
        assert text in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize("variant", ["nccl", "fused_steady", "fused_small_tiles"])
def test_no_word_of_a_narrow_report_is_broken(variant: str) -> None:
    """Nor a rate from its sign, and with two stacks rows say which is whose."""
    one = {**ROW, "flags": {"fused_allreduce": variant}}
    other = {**one, "stack": "fedcba9876543210"}
    split = {"items": [one, other], "totals": [TOTAL], "next_cursor": None}
    for answer, stacks in ((split, 1), ({**split, "items": [one, one]}, 0)):
        out = run(FakeControlPlane({PATH: answer}), "report", "weekly").stdout
        words = out.split()
        assert words.count(variant) == 2
        assert words.count("imported)") == 2
        for stack in ("01234567", "fedcba98"):
            assert words.count(stack) == stacks
        assert sum("0.70 %" in line and "0.08 %" in line for line in out.splitlines()) >= 2
        assert max(map(len, out.splitlines())) <= 80


def test_mixed_says_from_what_and_is_explained_below() -> None:
    """Sessions that changed variant speak for none of them alone."""
    mixed = run(FakeControlPlane({PATH: report()}), "report", "weekly")
    assert "from fused_steady" in mixed.stdout
    assert "mixed: sessions that changed variant while they ran" in mixed.stderr
    pure = run(FakeControlPlane({PATH: report(is_mixed=False)}), "report", "weekly")
    assert "from fused_steady" not in pure.stdout
    assert "mixed" not in pure.stderr


def test_the_question_is_handed_on_as_it_was_asked() -> None:
    plane = FakeControlPlane({PATH: report()})
    dates = ("--anchor", "2026-10-08", "--from", "2026-09-03", "--to", "2026-10-21")
    assert run(plane, "report", "weekly", "--fleet", "live", *dates).exit_code == Exit.OK
    assert plane.calls[0].query == {
        "fleet": "live",
        "anchor": "2026-10-08",
        "from": "2026-09-03",
        "to": "2026-10-21",
    }


def test_a_sample_is_marked_wherever_it_is_shown() -> None:
    """Nobody should take invented sessions for a fleet."""
    plane = FakeControlPlane({PATH: report(is_sample=True)})
    assert "fleet live (sample data)" in run(plane, "report", "weekly").stdout
    fleet = {"name": "sample", "mode": "observe", "is_sample": True}
    listed = FakeControlPlane({("GET", "/v1/fleets"): {"items": [fleet]}})
    assert "sample data" in run(listed, "fleet", "list").stdout


@pytest.mark.parametrize("target", ["-", "report.csv"])
def test_csv_goes_to_stdout_or_a_file(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(FakeControlPlane({CSV: "week"}), "report", "weekly", "--csv", target)
    assert result.exit_code == Exit.OK
    text = result.stdout if target == "-" else (tmp_path / target).read_text()
    assert json.loads(text) == "week"


def test_a_file_that_cannot_be_written_is_named() -> None:
    result = run(FakeControlPlane({CSV: "week"}), "report", "weekly", "--csv", "/nonexistent/a.csv")
    assert result.exit_code == Exit.USAGE
    assert "/nonexistent/a.csv" in result.stderr


def test_a_report_of_nothing_says_so() -> None:
    empty: dict[str, Any] = {"items": [], "totals": [], "next_cursor": None}
    result = run(FakeControlPlane({PATH: empty}), "report", "weekly")
    assert "no session has ended yet" in result.stdout
