"""Commands that change something: reason, rehearsal, confirmation, and doing it once."""

import json
from pathlib import Path

import httpx
import pytest

from controlplane.cli.exits import Exit
from tests.cli.fake import EFFECT, FakeControlPlane, run

PINS = "/v1/fleets/live/workers/worker-a/pins"
FLIP = ("flip", "live", "worker-a", "fused_allreduce", "fused_steady")
REPORT = ("canary", "report-quality", "c-1", "--measure", "vmaf", "--samples", "200")
CHANGES = [
    (("fleet", "adopt", "live"), "/v1/fleets", {"name": "live"}),
    (("fleet", "enforce", "live"), "/v1/fleets/live/mode", {"mode": "enforce"}),
    (("fleet", "observe", "live"), "/v1/fleets/live/mode", {"mode": "observe"}),
    (("stop-the-line", "live"), "/v1/fleets/live/stop-the-line", {}),
    (("lift", "live"), "/v1/fleets/live/lift", {}),
    (
        FLIP,
        PINS,
        {"flag": "fused_allreduce", "variant": "fused_steady", "expires_in_s": 14400},
    ),
    (
        ("unpin", "live", "worker-a", "fused_allreduce"),
        "/v1/fleets/live/workers/worker-a/unpin",
        {"flag": "fused_allreduce"},
    ),
    (
        ("canary", "start", "live", "fused_allreduce", "fused_all", "--policy", "demo"),
        "/v1/canaries",
        {"fleet": "live", "flag": "fused_allreduce", "variant": "fused_all", "policy": "demo"},
    ),
    (
        ("canary", "start", "live", "--stack", "f0f0", "--hardware", "cpu", "--policy", "stack"),
        "/v1/canaries",
        {"fleet": "live", "stack": "f0f0", "hardware": "cpu", "policy": "stack"},
    ),
    *(
        (("canary", kind, "c-1"), "/v1/canaries/c-1/requests", {"kind": kind})
        for kind in ("abort", "promote", "pause", "resume")
    ),
    (
        (*REPORT, "--value", "-0.5"),
        "/v1/canaries/c-1/quality",
        {"measure": "vmaf", "value": -0.5, "num_samples": 200},
    ),
    (("token", "create", "viewer"), "/v1/tokens", {"role": "viewer"}),
]


@pytest.mark.parametrize(("arguments", "path", "body"), CHANGES)
def test_each_change_posts_what_it_says_with_the_reason(
    arguments: tuple[str, ...], path: str, body: dict[str, object]
) -> None:
    """The command line is the API's, word for word."""
    plane = FakeControlPlane({("POST", path): {"name": "c-1", "token": "sf_x"}})
    result = run(plane, *arguments, "--reason", "because", "--yes")
    assert result.exit_code == Exit.OK, result.output
    assert [call.body for call in plane.made] == [{**body, "reason": "because"}]


@pytest.mark.parametrize(("arguments", "path", "body"), CHANGES)
def test_no_change_is_made_without_a_reason(
    arguments: tuple[str, ...], path: str, body: dict[str, object]
) -> None:
    """The audit log answers why; a change without a why is refused before any request."""
    del body
    plane = FakeControlPlane({("POST", path): {}})
    result = run(plane, *arguments, "--yes")
    assert result.exit_code == Exit.USAGE
    assert "--reason" in result.stderr
    assert plane.calls == []


def test_the_effects_are_told_before_anything_is_done() -> None:
    """Without a terminal nobody can be asked, so the rehearsal is all that happens."""
    plane = FakeControlPlane({("POST", PINS): {}})
    result = run(plane, *FLIP, "--reason", "trial")
    assert result.exit_code == Exit.USAGE
    assert EFFECT in result.stderr
    assert "--yes" in result.stderr
    assert plane.made == []


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    """The control plane carries out the change once, however often the answer gets lost."""

    class LosesOneAnswer(FakeControlPlane):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            answer = FakeControlPlane.handle_request(self, request)
            if len(self.made) == 1:
                raise httpx.ReadTimeout("no answer")
            return answer

    plane = LosesOneAnswer({("POST", PINS): {}})
    assert run(plane, *FLIP, "--reason", "trial", "--yes").exit_code == Exit.OK
    keys = [call.headers["Idempotency-Key"] for call in plane.made]
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_json_of_a_change_is_the_answer_alone() -> None:
    """Effects and questions go to stderr, so that stdout stays parseable."""
    plane = FakeControlPlane({("POST", "/v1/fleets"): {"name": "live", "mode": "observe"}})
    result = run(plane, "fleet", "adopt", "live", "--reason", "x", "--yes", "--json")
    assert json.loads(result.stdout) == {"name": "live", "mode": "observe"}


def test_a_token_goes_to_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    """A token on a screen is in a scrollback; --out keeps it off."""
    plane = FakeControlPlane({("POST", "/v1/tokens"): {"token": "sf_secret"}})
    out = tmp_path / "token"
    result = run(plane, "token", "create", "viewer", "--out", str(out), "--reason", "x", "--yes")
    assert "sf_secret" not in result.output
    assert out.read_text() == "sf_secret\n"
    assert out.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e400", "1000000.5", "-1e7"])
def test_a_value_that_no_gate_can_judge_is_refused_before_anything_is_sent(value: str) -> None:
    """NaN is neither above nor below a bound, and must never be taken for a measurement."""
    plane = FakeControlPlane({("POST", "/v1/canaries/c-1/quality"): {}})
    result = run(plane, *REPORT, "--value", value, "--reason", "x", "--yes", "--json")
    assert result.exit_code == Exit.REFUSED
    told = json.loads(result.stdout)
    assert told["key"] == "--value"
    assert told["value"] == repr(float(value))
    assert "-1000000 to 1000000" in told["allowed"]
    assert plane.calls == []


@pytest.mark.parametrize(
    "words",
    [("live",), ("live", "f"), ("live", "f", "v", "--stack", "s"), ("live", "f", "--stack", "s")],
)
def test_a_canary_is_of_a_flag_and_a_variant_or_of_a_stack(words: tuple[str, ...]) -> None:
    plane = FakeControlPlane({})
    result = run(plane, "canary", "start", *words, "--policy", "p", "--reason", "x", "--yes")
    assert result.exit_code == Exit.USAGE
    assert "FLAG and VARIANT, or --stack DIGEST alone" in " ".join(result.output.split())
    assert plane.made == []
