"""What nobody should type or answer, and a control plane that answers every command with it."""

import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from typing import Any
from unittest import mock

import httpx
import typer

from controlplane.cli.exits import Exit
from controlplane.cli.main import app
from tests.cli.test_explaining import EXPLAINED
from tests.cli.test_reading import CANARY, WORKER
from tests.cli.test_report import ROW, TOTAL

VALUES = (
    "\x1b[31mred\x1b]0;title\x07",
    "[red]x[/red]",
    "{0}{x!r}%s",
    "a" * 10_000,
    "a\x00b",
    "\udcff\udc80",  # bytes that are not UTF-8, as Python hands them over
    "a\nerror: forged",
    "",
    "../../v1/tokens",
    "a/b?x=1#y",
    "\u202egnp.exe",
    "\x9b31m",
    "1e999",
    "-1",
)
TEXT = "\x1b[31m[red]\x9b{0}\u202e\x07\nerror: forged \ud800"
FLEET: dict[str, Any] = {
    "name": "live",
    "mode": "enforce",
    "promoted": {"fused_allreduce": "nccl"},
    "stopped_reason": "frozen",
    "num_workers": 1,
}
HELD = {
    **WORKER,
    "address": "ws://127.0.0.1:1",
    "incarnation": "life-1",
    "flag_bytes": {"fused_allreduce": 3 << 20},
    "trip": {"reason": "nan", "at": "2026-11-30T19:08:36+00:00", "generation": 3},
    "pins": [
        {
            "flag": "fused_allreduce",
            "variant": "nccl",
            "reason": "compare",
            "actor": "token:ada",
            "expires_at": "9999-11-30T19:08:36+00:00",
        }
    ],
    "is_cordoned": True,
    "is_quarantined": True,
    "is_break_glass": True,
}
REASON = {"flag": "fused_allreduce", "variant": "nccl", "layer": "pin", "reason": "pinned"}
POLICY = {
    "name": "demo",
    "flag": "fused_allreduce",
    "summary": "short",
    "digest": "ab",
    "describes": ["asks"],
}
ANSWERS: Mapping[str, Any] = {
    "/readyz": {"status": "ready"},
    "/v1/fleets": {"items": [FLEET]},
    "/v1/fleets/live": FLEET,
    "/v1/fleets/live/workers": {"items": [HELD]},
    "/v1/fleets/live/workers/worker-a": HELD,
    "/v1/fleets/live/workers/worker-a/explain": {"reasons": [REASON]},
    "/v1/canaries": {"items": [CANARY]},
    "/v1/canaries/c-1": {
        "canary": {**CANARY, "bake_s": 1.0},
        "steps": [{"name": "one", "bake_s": 10.0}],
        "gates": CANARY["gates"],
        "workers": CANARY["workers"],
    },
    "/v1/canaries/c-1/explanation": EXPLAINED,
    "/v1/policies": {"items": [POLICY]},
    "/v1/policies/demo": POLICY,
    "/v1/flags": {"items": [{"name": "fused_allreduce", "variants": [{"name": "nccl"}]}]},
    "/v1/reports/weekly": {"items": [ROW], "totals": [TOTAL]},
    "/v1/reports/weekly.csv": "week,fleet\r\n",
}
MADE = {"name": "c-1", "fleet": "live", "ahead": ["c-0"], "token": "sf_x", "effects": ["done"]}
# A value that each argument and option takes.
GOOD = {
    "fleet": "live",
    "worker": "worker-a",
    "flag": "fused_allreduce",
    "variant": "nccl",
    "canary": "c-1",
    "policy": "demo",
    "role": "viewer",
    "hours": "1",
    "patience": "1",
    "number": "1",
    "measure": "vmaf",
    "value": "93.5",
    "samples": "200",
}
# Typed: a number that is no name, a port that is none, so that nothing is ever started.
NEVER_STARTED = {"serve": ("--port", "70000"), "demo": ("--nothing-of-that-name",)}


def _likeness(path: str) -> str:
    """The route of `path` with the names of ours in place of a hostile one."""
    parts = path.split("/")
    return "/v1/fleets/live/workers" if parts[-1] == "workers" else f"/v1/{parts[2]}/c-1"


Change = Callable[[str, str], str]


class Answering(httpx.BaseTransport):
    """Answers every route of the commands, each text of it changed by `change(key, text)`."""

    def __init__(self, change: Change = lambda _, text: text, *, status: int = 200) -> None:
        self._change = change
        self._status = status

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self._status != 200:
            problem = {"detail": "no", "key": "k", "value": "v", "allowed": "a, b", "kind": "fleet"}
            return httpx.Response(
                self._status,
                content=self._text(problem),
                headers={"Content-Type": "application/problem+json"},
            )
        if request.method == "POST":
            return httpx.Response(200, content=self._text(MADE))
        # What is nobody's name is asked for like any other.
        path = request.url.path if request.url.path in ANSWERS else _likeness(request.url.path)
        return httpx.Response(200, content=self._text(ANSWERS.get(path, {"items": []})))

    def _text(self, answer: Any) -> bytes:
        changed = self._changed("", answer)
        text = changed if isinstance(changed, str) else json.dumps(changed)
        return text.encode("utf-8", "replace")

    def _changed(self, key: str, value: Any) -> Any:
        match value:
            case str():
                return self._change(key, value)
            case dict():
                return {name: self._changed(name, part) for name, part in value.items()}
            case list():
                return [self._changed(key, part) for part in value]
            case _:
                return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended."""

    stdout: str
    stderr: str
    exit_code: int
    error: BaseException | None = None


_COMMAND: Any = typer.main.get_command(app)


def run(plane: httpx.BaseTransport, *arguments: str, **environment: str) -> Ended:
    """The command, built once: it is run thousands of times here."""
    variables = {
        "STEADYFRAME_URL": "http://plane.test",
        "STEADYFRAME_TOKEN": "sf_test",
        "STEADYFRAME_STATE_DIR": "/nonexistent",
        "NO_COLOR": "1",
        **environment,
    }
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    error: BaseException | None = None
    with mock.patch.dict(os.environ, variables), redirect_stdout(out), redirect_stderr(err):
        try:
            _COMMAND.main(list(arguments), obj=plane)
        except SystemExit as ended:
            code = ended.code
        except Exception as raised:  # noqa: BLE001 - what it is, is what is under test
            error = raised
    return Ended(stdout=out.getvalue(), stderr=err.getvalue(), exit_code=code, error=error)


def commands(group: Any = _COMMAND, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command by its words."""
    for name, each in group.commands.items():
        if hasattr(each, "commands"):
            yield from commands(each, (*above, name))
        else:
            yield (*above, name)


def parameters(words: tuple[str, ...]) -> list[Any]:
    """The parameters of one command, as click has them."""
    found = _COMMAND
    for word in words:
        found = found.commands[word]
    return [each for each in found.params if each.name not in ("help", "context")]


def line(words: tuple[str, ...], *, file: str, hostile: Any = None, value: str = "") -> list[str]:
    """A command line that is sound, but for `value` in place of the parameter `hostile`."""
    first: list[str] = []
    options: list[str] = []
    positional: list[str] = []
    for each in parameters(words):
        is_hostile = hostile is not None and each.name == hostile.name
        good = file if each.name in ("file", "out", "summary") else GOOD.get(each.name, "")
        if each.param_type_name == "argument":
            positional.append(value if is_hostile else good)
        elif is_hostile and not getattr(each, "is_flag", False):
            first += [each.opts[0], value]
        elif each.required:
            options += [each.opts[0], good]
    names = {each.name for each in parameters(words)}
    why = ["--reason", "why", "--yes"] if "reason" in names else []
    if hostile is not None and hostile.name == "reason":
        why = ["--yes"]
    return [*words, *first, *options, *why, *NEVER_STARTED.get(words[-1], ()), "--", *positional]


def fault(result: Ended) -> str:
    """What is wrong with how the command ended; empty if nothing is."""
    told = result.stdout + result.stderr
    if result.error is not None:
        return f"it raised {result.error!r}"
    if result.exit_code not in set(Exit):
        return f"exit code {result.exit_code} is not documented"
    if "Traceback" in told:
        return "a traceback"
    raw = [each for each in told.replace("\n", "").replace("\r", "") if not each.isprintable()]
    return f"raw {raw[:3]!r} on the terminal" if raw else ""
