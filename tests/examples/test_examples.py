"""Each example does what its page says, against a control plane in a process of its own."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.test_end_to_end import WHY, Shell, shell

__all__ = ["shell"]  # the fixture: a shell beside a control plane

EXAMPLES = Path(__file__).parents[2] / "examples"
FLEET = "mine"


@pytest.fixture
def api(shell: Shell) -> Iterator[httpx.Client]:
    """The control plane as its admin speaks to it, with the fleet of the examples."""
    state_dir = Path(shell.environment["STEADYFRAME_STATE_DIR"])
    url = json.loads((state_dir / "address.json").read_text())["url"]
    token = (state_dir / "admin.token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as client:
        if FLEET not in shell.run("fleet", "list", "--json").stdout:
            shell.json("fleet", "adopt", FLEET, *WHY)
        yield client


def worker_token(shell: Shell, worker: str, folder: Path) -> Path:
    """A file with a token for `worker`, made as the page says."""
    file = folder / f"{worker}.token"
    role = ("worker", "--fleet", FLEET, "--worker", worker)
    made = shell.run("token", "create", *role, "--out", str(file), *WHY)
    assert made.returncode == 0, made.stderr
    return file


def play(program: str, *arguments: str) -> None:
    """Run an example to its end."""
    command = [sys.executable, str(EXAMPLES / program), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def sessions_of(api: httpx.Client, worker: str, *, number: int) -> list[dict[str, Any]]:
    """The ended sessions of `worker`, once there are so many."""
    found: list[dict[str, Any]] = []
    for _ in range(100):
        answer = api.get("/v1/sessions", params={"fleet": FLEET}).raise_for_status().json()
        found = [one for one in answer["items"] if one["worker"] == worker]
        if len(found) >= number:
            return found
        threading.Event().wait(0.1)
    pytest.fail(f"{len(found)} sessions of {worker}, {number} expected")


def test_the_agent_runs_in_a_server_that_is_not_ours(
    shell: Shell,
    api: httpx.Client,
    tmp_path: Path,
) -> None:
    token = worker_token(shell, "box-1", tmp_path)
    play(
        "foreign_server/server.py",
        *(str(api.base_url).rstrip("/"), FLEET, "box-1", str(token), str(tmp_path / "state"), "2"),
    )
    found = sessions_of(api, "box-1", number=2)
    assert {one["outcome"] for one in found} == {"completed"}
    assert {one["num_frames"] for one in found} == {52}
    assert sorted(one["first_forward_length"] for one in found) == [8, 9]
    assert shell.json("worker", "show", FLEET, "box-1")["effective_flags"] == {
        "fused_allreduce": "nccl"
    }


def test_the_foreign_server_is_forty_lines() -> None:
    lines = (EXAMPLES / "foreign_server" / "server.py").read_text().splitlines()
    code = [line for line in lines if line.strip()]
    assert len(code) <= 45


def test_a_plain_opentelemetry_sdk_sends_sessions_at_most_once(
    shell: Shell,
    api: httpx.Client,
    tmp_path: Path,
) -> None:
    token = worker_token(shell, "box-2", tmp_path)
    url = str(api.base_url).rstrip("/")
    play("opentelemetry_sdk/send.py", url, FLEET, "box-2", str(token), "3")
    found = sessions_of(api, "box-2", number=3)
    assert {(one["num_frames"], one["outcome"]) for one in found} == {(252, "completed")}
    assert "at most once" in (EXAMPLES / "opentelemetry_sdk" / "README.md").read_text().lower()


def test_the_policy_from_scratch_is_understood_as_its_page_says(shell: Shell) -> None:
    file = EXAMPLES / "policy_from_scratch" / "policy.yaml"
    linted = shell.run("policy", "lint", str(file))
    assert linted.returncode == 0, linted.stderr
    told = " ".join(linted.stdout.split())
    assert "one worker without viewers runs 16 first-forward lengths from 16 to 2048" in told
    assert "at least 12 of 16 buckets of first-forward lengths" in told
    assert "a healthy" not in told, "a live floor would send back what is healthy"
    assert "at most 1% of healthy canaries are ever rolled back" in told
    assert "warning" not in told
