"""`python -m worker.viewer` against a worker whose engine does what it is told."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.worker.supervisor.test_supervisor import Worker, worker
from worker import prompts
from worker.features import Features
from worker.viewer import cli


def run(tmp_path: Path, *options: str) -> Worker:
    async def scenario() -> Worker:
        async with worker(tmp_path) as subject:
            arguments = ["--url", subject.url, "--seconds", "0.3", *options]
            with pytest.raises(SystemExit) as ended:
                await asyncio.to_thread(cli.main, arguments)
            assert ended.value.code == 0
        return subject

    return asyncio.run(scenario())


def test_it_says_what_it_is_told_at_the_steps_it_is_told_and_reports_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A drill is a command that another person can repeat."""
    subject = run(
        tmp_path, "--json", "--prompt", "a dog", "--prompt-at", "3:a red: fox",
        "--audio-at", "5:0.5,-1", "--control-at", "5:1", "--audio-at", "7:3",
        "--pause-at", "9:0.05", "--start-chunks", "2", "--receive-bytes", "65536",
    )  # fmt: skip
    encoded = [prompts.encoded(text, bounds=(1, 48)) for text in ("a dog", "a red: fox")]
    assert subject.engine.prompts == encoded
    assert subject.engine.features[-1] == Features(audio=[0.5, -1], control=[1]).packed()
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    (session,) = report["sessions"]
    assert len(session["prompt_steps"]) == 1
    assert [rejection["key"] for rejection in session["rejections"]] == ["features.0"]
    assert (session["num_step_gaps"], session["paused_s"]) == (0, 0.05)
    assert session["first_forward_length"] is None
    assert session["playback"].keys() == {
        "num_stalls", "stalled_s", "longest_stall_ms", "lowest_level", "level",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "allowed"),
    [
        ("--prompt-at", "a dog", "STEP:WORDS"),
        ("--audio-at", "3:x", "STEP:NUMBER,NUMBER,..."),
        ("--control-at", "3", "STEP:NUMBER,NUMBER,..."),
        ("--pause-at", "3:-1", "STEP:SECONDS"),
        ("--lengths", "8;9", "TOKENS,TOKENS,..."),
    ],
)
def test_an_option_that_cannot_be_read_is_named_with_what_is_allowed(
    capsys: pytest.CaptureFixture[str], option: str, value: str, allowed: str
) -> None:
    """Before anything is asked of a worker."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["--url", "ws://127.0.0.1:9", option, value])
    assert ended.value.code == 2
    assert f"argument {option}: {value!r}; allowed: {allowed}" in capsys.readouterr().err
