"""Whatever is typed, set, read or answered: no traceback, no raw escape, a documented exit code.

Commands and options are found in the command itself, so that a new one is under test at once.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from controlplane.cli.exits import Exit
from tests.cli import hostile
from tests.cli.hostile import TEXT, VALUES, Answering, fault, line, run

COMMANDS = list(hostile.commands())
LOCAL = {("serve",), ("demo",), ("policy", "lint")}
ASKING = [words for words in COMMANDS if words not in LOCAL]
CHANGES = [
    words for words in COMMANDS if any(each.name == "reason" for each in hostile.parameters(words))
]
SOUND_POLICY = Path(__file__).resolve().parents[2] / "policies" / "demo.yaml"
PARAMETERS = [
    pytest.param(words, each, id=f"{'-'.join(words)}-{each.name}")
    for words in COMMANDS
    for each in hostile.parameters(words)
    if not getattr(each, "is_flag", False)
]


def by_words(words: tuple[str, ...]) -> str:
    return "-".join(words)


def test_the_commands_are_found() -> None:
    """An empty tree would pass everything."""
    assert len(COMMANDS) > 25
    assert ("canary", "start") in COMMANDS
    assert len(PARAMETERS) > 150


@pytest.mark.parametrize(("words", "parameter"), PARAMETERS)
def test_no_argument_breaks_a_command(
    words: tuple[str, ...], parameter: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number, value in enumerate(VALUES):
        file = str(SOUND_POLICY) if words[0] == "policy" else str(tmp_path / f"new-{number}")
        result = run(Answering(), *line(words, file=file, hostile=parameter, value=value))
        assert not fault(result), (value[:40], fault(result))


@pytest.mark.parametrize("words", COMMANDS, ids=by_words)
def test_no_name_reaches_a_path_that_it_does_not_name(words: tuple[str, ...]) -> None:
    """`fleet show ../tokens` must not ask for the tokens; the refusal names key, value, allowed."""
    for parameter in hostile.parameters(words):
        if parameter.param_type_name != "argument" or parameter.name in ("file", "role", "number"):
            continue
        given = line(words, file="", hostile=parameter, value="../../v1/tokens")
        result = run(
            Answering(), *given[: given.index("--")], "--json", *given[given.index("--") :]
        )
        told = json.loads(result.stdout)
        assert result.exit_code == Exit.REFUSED
        assert told["key"] == parameter.name.upper()
        assert told["value"] == "'../../v1/tokens'"
        assert "names that match" in told["allowed"]


@pytest.mark.parametrize("words", ASKING, ids=by_words)
@pytest.mark.parametrize("status", [200, 403, 404, 422, 500])
def test_no_text_of_an_answer_reaches_the_terminal_raw(
    words: tuple[str, ...], status: int, tmp_path: Path
) -> None:
    """A colleague's reason, or a worker's own name, moves no cursor and forges no line."""

    def changed(key: str, text: str) -> str:
        # A watch waits for a phase that it knows.
        return text if key == "phase" and words[-1] == "watch" else f"{text}{TEXT}"

    file = str(SOUND_POLICY) if words[0] == "policy" else str(tmp_path / "new")
    given = line(words, file=file)
    for arguments in (given, [*given[: given.index("--")], "--json", *given[given.index("--") :]]):
        result = run(Answering(changed, status=status), *arguments)
        assert not fault(result), fault(result)
        lines = (result.stdout + result.stderr).splitlines()
        assert not any(each.startswith("error: forged") for each in lines)


@pytest.mark.parametrize("words", ASKING, ids=by_words)
@pytest.mark.parametrize("answer", [{}, [], {"items": [1]}, {"items": [{}]}, {"items": 3}, "text"])
def test_an_answer_of_another_form_is_the_servers_fault(
    words: tuple[str, ...], answer: Any, tmp_path: Path
) -> None:
    class Odd(Answering):
        def _changed(self, key: str, value: Any) -> Any:
            del key, value
            return answer

    file = str(SOUND_POLICY) if words[0] == "policy" else str(tmp_path / "new")
    result = run(Odd(), *line(words, file=file))
    assert not fault(result), fault(result)


@pytest.mark.parametrize(
    "name",
    [
        "STEADYFRAME_URL",
        "STEADYFRAME_TOKEN",
        "STEADYFRAME_TOKEN_FILE",
        "STEADYFRAME_STATE_DIR",
        "STEADYFRAME_TIMEOUT_S",
    ],
)
def test_no_variable_breaks_a_command(name: str) -> None:
    for value in VALUES:
        if "\x00" in value:
            continue  # no environment can hold it
        result = run(Answering(), "fleet", "list", **{name: value})
        assert not fault(result), (value[:40], fault(result))


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe\x00",
        b"\x00" * 1000,
        b"\x1b[31mred: [red]\n",
        b"[" * 10_000,
        b"a: &a [*a, *a]",
        b"policy: !!python/object/apply:os.system ['true']",
        b'policy: 1\nname: "\\x1b[31m"\n',
        b"x" * (70 * 1024),
        b"steps: " + b"9" * 5000,
        b"",
    ],
)
@pytest.mark.parametrize(
    "words",
    [("policy", "lint"), ("policy", "add"), ("import", "sessions"), ("fleet", "list")],
    ids=by_words,
)
def test_no_file_breaks_a_command(words: tuple[str, ...], content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    file.chmod(0o600)
    given = line(words, file=str(file))
    if words == ("fleet", "list"):
        given = [*words, "--token-file", str(file)]
    result = run(Answering(), *given)
    assert not fault(result), fault(result)
    if words != ("policy", "add"):
        assert result.exit_code in (Exit.REFUSED, Exit.USAGE)


@pytest.mark.parametrize("words", CHANGES, ids=by_words)
def test_a_reason_that_forges_a_line_is_refused_before_anything_is_sent(
    words: tuple[str, ...],
) -> None:
    class Silent(Answering):
        def handle_request(self, request: Any) -> Any:
            raise AssertionError(f"asked for {request.url}")

    reason = next(each for each in hostile.parameters(words) if each.name == "reason")
    given = line(words, file=str(SOUND_POLICY), hostile=reason, value="x\x1b[2J")
    result = run(Silent(), *given)
    assert result.exit_code == Exit.REFUSED, result.stderr
    assert "reason: 'x\\x1b[2J' is not allowed" in " ".join(result.stderr.split())
