"""`steadyframe policy lint`: every wrong key at once, with nobody to ask."""

import json
from pathlib import Path

import pytest

from controlplane.cli import linting
from controlplane.cli.exits import Exit
from controlplane.cli.linting import Findings
from controlplane.services.documents import load_yaml
from tests.cli.fake import FakeControlPlane, run

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted(path for path in (ROOT / "policies").glob("*.yaml") if path.stem != "flags")
MANY = """
policy: 2
name: Bad Name
summary: ok
flag: fused_alreduce
surprise: 1
steps:
  - {name: soak, workers: 0, traffic: synthetc, bake: 15 hours, least_sessions: 200}
  - {name: soak, workers: 80%, bake: 1h, lest_sessions: 50}
gates:
  - {gate: floor, metric: session_fp, at_least: NaN}
  - {gate: memory, metric: retained_bytes_per_length, at_most: 1MB, usage_at_most: 190%}
  - {gate: florr}
hard_stops: [out_of_memry, nan, nan]
limits: {lease: 90, max_flips_per_minute: -1, unknown: 3}
"""
WRONG = {
    "policy",
    "name",
    "flag",
    "surprise",
    "steps[0].workers",
    "steps[0].traffic",
    "steps[0].bake",
    "steps[1].name",
    "steps[1].workers",
    "steps[1].lest_sessions",
    "steps[1].least_sessions",
    "gates",
    "gates[0].metric",
    "gates[0].at_least",
    "gates[1].at_most",
    "gates[1].usage_at_most",
    "gates[2].gate",
    "hard_stops[0]",
    "hard_stops[2]",
    "limits.lease",
    "limits.max_flips_per_minute",
    "limits.unknown",
}


def keys(findings: Findings) -> list[str]:
    return [problem.key for problem in findings.problems]


def test_every_wrong_key_is_named_once_and_no_other() -> None:
    """One at a time makes twenty rounds of one afternoon."""
    found = linting.lint(MANY)
    assert sorted(keys(found)) == sorted(WRONG)
    assert found.is_complete


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_shipped_policies_are_sound(path: Path) -> None:
    found = linting.lint(path.read_text())
    assert (keys(found), found.is_complete) == ([], True)
    assert found.policy is not None
    assert found.policy.name == path.stem


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
@pytest.mark.parametrize("key", ["policy", "name", "summary", "flag", "steps", "gates"])
def test_a_key_that_is_missing_is_named_and_none_that_nobody_wrote(path: Path, key: str) -> None:
    """What is put in its place to go on with must not be told as a fault of the author."""
    document = load_yaml(path.read_text())
    assert isinstance(document, dict)
    del document[key]
    first, *others = keys(linting.lint(json.dumps(document)))
    # What the author wrote may need what is missing, as a margin needs its gate.
    assert all(linting._at(document, linting._parts(other)) is not None for other in others)
    assert first == key


@pytest.mark.parametrize("text", ["", "[1, 2", "just a word", "- 1\n- 2\n", "a: 1\na: 2\n"])
def test_what_is_no_table_is_one_problem_and_said_to_hide_others(text: str) -> None:
    found = linting.lint(text)
    assert len(found.problems) == 1
    assert not found.is_complete


def test_it_asks_nobody_and_needs_no_token(tmp_path: Path) -> None:
    """It runs in the CI of whoever keeps the policies, where there is no control plane."""
    nobody = {"STEADYFRAME_TOKEN": "", "STEADYFRAME_URL": "http://127.0.0.1:1"}
    plane = FakeControlPlane()
    sound = run(plane, "policy", "lint", str(SHIPPED[0]), environment=nobody)
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(MANY)
    unsound = run(plane, "policy", "lint", str(wrong), environment=nobody)
    assert (sound.exit_code, unsound.exit_code) == (Exit.OK, Exit.REFUSED)
    assert "steps[0].bake: '15 hours' is not allowed" in unsound.stderr
    assert plane.calls == []


def test_json_has_every_problem_with_key_value_and_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(MANY)
    result = run(FakeControlPlane(), "policy", "lint", str(file), "--json")
    told = json.loads(result.stdout)
    assert told["code"] == Exit.REFUSED
    assert {problem["key"] for problem in told["problems"]} == WRONG
    assert all(problem["value"] and problem["allowed"] for problem in told["problems"])
    sound = json.loads(run(FakeControlPlane(), "policy", "lint", str(SHIPPED[0]), "--json").stdout)
    assert sound["policy"]["policy"] == 1
    assert sound["describes"]


def test_the_catalogue_of_flags_is_called_that() -> None:
    """It lies beside the policies; that each of its keys is wrong says nothing."""
    result = run(FakeControlPlane(), "policy", "lint", str(ROOT / "policies" / "flags.yaml"))
    assert result.exit_code == Exit.REFUSED
    assert "this is the catalogue of flags, not a policy" in " ".join(result.stderr.split())
    assert "keys are wrong" not in result.stderr
