"""The command line against a real control plane in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.exits import Exit

COMMAND = (sys.executable, "-m", "controlplane.cli.main")
WHY = ("--reason", "end to end", "--yes")


class Shell:
    """A person's shell on the machine of the control plane."""

    def __init__(self, state_dir: Path) -> None:
        kept = {name: v for name, v in os.environ.items() if not name.startswith("STEADYFRAME_")}
        self.environment = {**kept, "STEADYFRAME_STATE_DIR": str(state_dir), "NO_COLOR": "1"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def json(self, *arguments: str) -> Any:
        ended = self.run(*arguments, "--json")
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A shell beside a control plane that listens on a free port."""
    state_dir = tmp_path_factory.mktemp("state")
    shell = Shell(state_dir)
    with (
        (state_dir / "log").open("w") as log,
        subprocess.Popen(
            [*COMMAND, "serve", "--port", "0"], env=shell.environment, stderr=log
        ) as server,
    ):
        for _ in range(300):
            if (state_dir / "address.json").exists() and shell.run("fleet", "list").returncode == 0:
                break
            assert server.poll() is None, (state_dir / "log").read_text()
            threading.Event().wait(0.1)
        yield shell
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) in (0, -signal.SIGTERM)


def test_a_fleet_is_adopted_put_to_work_stopped_and_lifted(shell: Shell) -> None:
    """A day in the life of one fleet, by commands alone and with no address or token said."""
    assert shell.json("fleet", "adopt", "live", *WHY)["mode"] == "observe"
    assert shell.json("fleet", "enforce", "live", *WHY)["mode"] == "enforce"
    assert shell.json("stop-the-line", "live", *WHY)["stopped_reason"] == "end to end"
    assert "end to end" in shell.run("fleet", "show", "live").stdout
    assert shell.json("lift", "live", *WHY)["stopped_reason"] is None
    assert "live" in {fleet["name"] for fleet in shell.json("fleet", "list")}
    assert shell.json("worker", "list", "live") == []


def test_the_rehearsal_changes_nothing(shell: Shell) -> None:
    """What is shown without --yes is shown only."""
    ended = shell.run("fleet", "adopt", "rehearsed", "--reason", "x")
    assert ended.returncode == Exit.USAGE
    assert "rehearsed is adopted in mode observe" in ended.stderr
    assert shell.run("fleet", "show", "rehearsed").returncode == Exit.NOT_FOUND


def test_refusals_name_what_is_allowed(shell: Shell) -> None:
    """Unknown words are refused before anything flips."""
    shell.run("fleet", "adopt", "words", *WHY)
    start = ("canary", "start", "words", "fused_allreduce")
    unknown = shell.run(*start, "fused_some", "--policy", "demo", *WHY)
    assert unknown.returncode in (Exit.REFUSED, Exit.NOT_FOUND)
    assert "fused_steady" in unknown.stderr
    observing = shell.run(*start, "fused_steady", "--policy", "demo", *WHY)
    assert observing.returncode == Exit.CONFLICT
    assert "enforce" in observing.stderr
    assert "Traceback" not in unknown.stderr + observing.stderr


def test_a_policy_is_checked_before_it_is_kept(shell: Shell, tmp_path: Path) -> None:
    """The linter is the parser: what it passes is what is stored."""
    shipped = Path(__file__).resolve().parents[2] / "policies" / "demo.yaml"
    assert shell.run("policy", "lint", str(shipped)).returncode == Exit.OK
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(shipped.read_text().replace("bake: 5s", "bake: 5 seconds"))
    refused = shell.run("policy", "lint", str(wrong))
    assert refused.returncode == Exit.REFUSED
    assert "bake" in refused.stderr
    assert {policy["name"] for policy in shell.json("policy", "list")} >= {"demo", "as-in-august"}


def test_a_viewer_s_token_reads_and_changes_nothing(shell: Shell, tmp_path: Path) -> None:
    """Roles hold on the command line as on the API."""
    token = tmp_path / "viewer.token"
    made = shell.run("token", "create", "viewer", "--out", str(token), *WHY)
    assert made.returncode == Exit.OK, made.stderr
    may = ("--token-file", str(token))
    assert shell.run("fleet", "list", *may).returncode == Exit.OK
    assert shell.run("fleet", "adopt", "mine", *WHY, *may).returncode == Exit.NOT_AUTHORISED


def test_a_second_control_plane_on_the_same_state_is_refused(shell: Shell) -> None:
    """Two writers on one embedded database would each undo the other's work."""
    ended = shell.run("serve", "--port", "0")
    assert ended.returncode == Exit.CONFLICT, ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_report_without_sessions_says_so(shell: Shell) -> None:
    """An empty table would look like a fault."""
    assert "no session has ended yet" in shell.run("report", "weekly").stdout
