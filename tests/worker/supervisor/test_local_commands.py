"""What can be done on the worker's machine without a network and without the worker."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.worker.agent import build
from tests.worker.agent.build import FALLBACK, FAST, desired
from worker.agent import breakglass
from worker.main import cli


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit) as ending:
        cli.main(["local", *arguments, "--json"])
    assert ending.value.code == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_the_fallback_is_forced_and_given_back_offline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last resort of whoever is paged while the control plane is down."""
    monkeypatch.delenv(breakglass.VARIABLE, raising=False)
    folder = ("--state-dir", str(tmp_path))
    assert ran(capsys, "force-fallback", *folder)["is_break_glass"]
    assert ran(capsys, "status", *folder)["is_break_glass"]
    assert not ran(capsys, "clear", *folder)["is_break_glass"]


def test_status_tells_what_is_on_the_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also while the worker is gone."""
    with build.agent(tmp_path) as agent:
        agent.on_desired(desired(8, FAST))
        agent.open_session(first_forward_length=1)
    status = ran(capsys, "status", "--state-dir", str(tmp_path))
    assert (status["generation"], status["proven_flags"]) == (8, FAST)
    assert status["num_undelivered_records"] == 1
    assert not status["is_running"]


def test_a_running_worker_is_seen_by_its_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that outlived its worker must not look like one."""
    fields = {"worker": "w1", "address": "ws://x", "incarnation": "i", "pid": os.getpid()}
    (tmp_path / "worker.json").write_text(json.dumps(fields))
    assert ran(capsys, "status", "--state-dir", str(tmp_path))["is_running"]


def test_a_bad_configuration_ends_with_2_and_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not with a stack trace."""
    with pytest.raises(SystemExit) as ending:
        cli.main(["run", "--config", str(tmp_path / "none.json")])
    assert ending.value.code == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_variable_forces_the_fallback_too(tmp_path: Path) -> None:
    """Set in a unit file, before the worker's first breath."""
    environment = {breakglass.VARIABLE: "1"}
    assert breakglass.is_broken(tmp_path, environment=environment)
    assert not breakglass.is_broken(tmp_path, environment={breakglass.VARIABLE: "0"})
    with build.agent(tmp_path) as agent:
        agent._environment = environment
        agent.on_desired(desired(8, FAST))
        agent.beat()
        assert agent.wanted.flags == FALLBACK
