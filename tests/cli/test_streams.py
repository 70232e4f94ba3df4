"""The command as a process: readers that go, narrow terminals, Ctrl-C, a full disk."""

import os
import pty
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.cli.exits import Exit

COMMAND = (sys.executable, "-m", "controlplane.cli.main")
POLICY = str(Path(__file__).resolve().parents[2] / "policies" / "demo.yaml")
LINT = (*COMMAND, "policy", "lint", POLICY)


def environment(**changes: str) -> dict[str, str]:
    kept = {name: v for name, v in os.environ.items() if not name.startswith("STEADYFRAME_")}
    return {**kept, "STEADYFRAME_STATE_DIR": "/nonexistent", **changes}


@pytest.mark.parametrize("arguments", [("--help",), ("policy", "lint", POLICY), ("fleet", "list")])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_reader_that_has_enough_is_no_error(
    arguments: tuple[str, ...], form: tuple[str, ...]
) -> None:
    """`steadyframe ... | head -1` ends quietly, whatever it had to say."""
    reader, writer = os.pipe()
    os.close(reader)
    ended = subprocess.run(
        [*COMMAND, *arguments, *form],
        stdout=writer,
        stderr=subprocess.PIPE,
        env=environment(STEADYFRAME_URL="http://127.0.0.1:1"),
        text=True,
        check=False,
        timeout=60,
    )
    os.close(writer)
    assert "Traceback" not in ended.stderr
    assert "Broken" not in ended.stderr
    assert ended.returncode in (Exit.OK, Exit.SERVER_AWAY)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    """A script that believes a full disk goes on with half an answer."""
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            LINT, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60
        )
    assert ended.returncode == Exit.USAGE
    assert "cannot write the answer" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_ctrl_c_while_a_server_keeps_one_waiting_ends_with_130() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with subprocess.Popen(
            [*COMMAND, "fleet", "list", "--url", url, "--timeout", "60"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        ) as asking:
            connection, _ = listener.accept()
            asking.send_signal(signal.SIGINT)
            out, err = asking.communicate(timeout=60)
            connection.close()
    assert asking.returncode == Exit.INTERRUPTED
    assert out == ""
    assert "error: interrupted" in err
    assert "Traceback" not in err


def on_terminal(*command: str, columns: int, **changes: str) -> str:
    """What `command` writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    variables = environment(COLUMNS=str(columns), LINES="24", TERM="xterm-256color", **changes)
    with subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables
    ) as shown:
        os.close(theirs)
        parts = []
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end has closed
                break
            if not part:
                break
            parts.append(part)
        shown.wait(timeout=60)
    os.close(ours)
    return b"".join(parts).decode()


@pytest.mark.parametrize("columns", [24, 60, 200])
def test_prose_fits_the_terminal_and_no_more_than_a_hundred_columns(columns: int) -> None:
    shown = on_terminal(*LINT, columns=columns)
    # A word that is longer than the line, such as a path, stays whole: to be copied.
    lines = [line for line in shown.splitlines() if len(line.split()) > 1 and POLICY not in line]
    assert lines
    longest = max(len(word) for line in lines for word in line.split())
    assert max(len(line) for line in lines) <= max(min(columns, 100), longest + 6)


def test_no_colour_is_written_where_none_is_wanted() -> None:
    shown = on_terminal(*LINT, columns=80, NO_COLOR="1")
    assert "\x1b[3" not in shown
    assert "\x1b[9" not in shown


@pytest.mark.parametrize("name", [b"\xff\xfe", b"\x1b[31m"])
def test_bytes_that_are_no_text_are_refused_in_words(name: bytes) -> None:
    ended = subprocess.run(
        [*COMMAND, "fleet", "show", name],
        capture_output=True,
        env=environment(),
        check=False,
        timeout=60,
    )
    assert ended.returncode == Exit.REFUSED
    assert b"FLEET: " in ended.stderr
    assert b"\x1b" not in ended.stderr
    assert b"\xff" not in ended.stderr


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_of_another_encoding_gets_what_it_can_show(encoding: str) -> None:
    ended = subprocess.run(
        [*COMMAND, "fleet", "show", "caf\u00e9\u2501"],
        capture_output=True,
        env=environment(PYTHONIOENCODING=encoding),
        check=False,
        timeout=60,
    )
    assert ended.returncode == Exit.REFUSED
    assert b"Traceback" not in ended.stderr
