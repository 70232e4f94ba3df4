"""The command: what it prints, how it ends, and what it refuses."""

import json
import math

import pytest

from worker.main import cli, probe_command
from worker.probes import check
from worker.probes.check import Check, Verdict


def _ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        cli.main(["probe", *arguments])
    said = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, said.out, said.err


def test_json_has_a_schema_every_check_and_the_full_flags(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And on a machine without a GPU it ends with 3: a part was not measured."""
    code, out, err = _ended(
        capsys, "--preset", "tiny", "--flags", "pre_attention=fused", "--backends", "eager",
        "--json",
    )  # fmt: skip
    report = json.loads(out)
    names = {each["name"]: each["verdict"] for each in report["checks"]}
    assert (report["schema"], report["flags"]["pre_attention"]) == (1, "fused")
    assert report["flags"]["kv_cache"] == "write_time_bf16"
    assert names["numerics/eager/reset"] == "pass"
    assert (code, report["verdict"]) == (3, "unmeasured")
    assert names["synchronisation/device"] == "unmeasured"
    assert err.count("\n") == len(names)  # progress, a line a check


def test_a_person_gets_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = _ended(
        capsys, "--preset", "tiny-edge", "--flags", "fused_allreduce=fused_steady",
        "--backends", "eager",
    )  # fmt: skip
    lines = out.splitlines()
    assert lines[0].split() == ["check", "verdict", "value", "bound"]
    assert lines[-1] == "verdict: unmeasured"
    # One rank sums nothing, so the flag that was asked for must not look as if it had passed.
    assert lines[1].startswith("numerics/fused_allreduce")
    assert "unmeasured" in lines[1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--preset", "huge"), "preset is 'huge'; allowed: tiny-edge, tiny, demo, full"),
        (
            ("--preset", "tiny", "--flags", "kv_cache=fp4"),
            "flag 'kv_cache' has no variant 'fp4'; allowed: write_time_bf16, recompute",
        ),
        (("--preset", "tiny", "--flags", "speed=high"), "unknown flag 'speed'"),
        (("--preset", "tiny", "--flags", "kv_cache"), "flags is 'kv_cache'; allowed: NAME=VARIANT"),
        (
            ("--preset", "tiny", "--flags", "kv_cache=recompute,kv_cache=recompute"),
            "each name once",
        ),
        (
            ("--preset", "tiny", "--backends", "eager,tvm"),
            "backends is 'tvm'; allowed: eager, aot_eager, inductor",
        ),
        (("--preset", "tiny", "--device", "tpu"), "device is 'tpu'; allowed: cpu, cuda"),
    ],
)
def test_a_word_that_is_not_known_is_refused_with_what_is(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    code, out, err = _ended(capsys, *arguments)
    assert (code, out) == (2, "")
    assert said in err


def _check(verdict: Verdict) -> Check:
    return Check(name="a", verdict=verdict)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ((Verdict.PASS, Verdict.PASS), 0),
        ((Verdict.PASS, Verdict.FAIL, Verdict.UNMEASURED), 1),
        ((Verdict.PASS, Verdict.UNMEASURED), 3),
        ((), 3),
    ],
)
def test_one_failure_outweighs_all_and_nothing_measured_is_no_pass(
    verdicts: tuple[Verdict, ...], code: int
) -> None:
    assert probe_command.EXIT_CODES[check.overall(map(_check, verdicts))] == code


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_fails_and_stays_out_of_the_json(value: float) -> None:
    found = check.held("a", value, bound=1.0)
    assert found.verdict is Verdict.FAIL
    assert json.loads(json.dumps(check.to_fields(found), allow_nan=False))["value"] is None


@pytest.mark.parametrize(
    ("value", "verdict"), [(0.5, Verdict.PASS), (1.0, Verdict.PASS), (1.01, Verdict.FAIL)]
)
def test_a_bound_is_the_most_that_passes(value: float, verdict: Verdict) -> None:
    assert check.held("a", value, bound=1.0).verdict is verdict
