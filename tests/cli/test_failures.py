"""Whatever fails says what to do next, to a person and to a script, and nobody waits for long."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from controlplane.cli import connection
from controlplane.cli.client import CONNECT_TIMEOUT_S, Client
from controlplane.cli.exits import NEXT_STEPS, CliError, Exit
from tests.cli.fake import FakeControlPlane, run
from tests.cli.test_reading import WORKER

FLEET = ("GET", "/v1/fleets/live")
# Not failures of a command, but how what it looked at stands.
STATES = {Exit.OK, Exit.ROLLED_BACK, Exit.HELD, Exit.CANCELLED, Exit.ATTENTION}
USAGE = [
    (),
    ("fleet",),
    ("fleet", "show"),
    ("fleets", "show", "live"),
    ("fleet", "shwo", "live"),
    ("fleet", "show", "live", "--nonsense"),
    ("fleet", "show", "live", "too", "many"),
    ("flip", "live", "worker-a", "f", "v", "--hours", "99", "--reason", "x", "--yes"),
    ("flip", "live", "worker-a", "f", "v", "--hours", "soon", "--reason", "x", "--yes"),
    ("token", "create", "king", "--reason", "x", "--yes"),
    ("fleet", "adopt", "live", "--yes"),
    ("fleet", "adopt", "live", "--reason", "x"),
    ("policy", "lint", "/nonexistent"),
    ("serve", "--port", "70000"),
]


def told(plane: FakeControlPlane, *arguments: str, **environment: str) -> Any:
    """The one object on stdout."""
    return json.loads(run(plane, *arguments, "--json", environment=environment).stdout)


@pytest.mark.parametrize("exit_code", sorted(set(Exit) - STATES))
def test_no_failure_leaves_its_reader_without_a_next_step(exit_code: Exit) -> None:
    assert NEXT_STEPS[exit_code]
    assert CliError("no", exit_code=exit_code).next_step


@pytest.mark.parametrize("arguments", USAGE, ids=" ".join)
def test_a_wrong_command_line_is_one_object_too(arguments: tuple[str, ...]) -> None:
    """Scripts have typing errors as people do; they find them where they find everything else."""
    for line in ((*arguments, "--json"), ("--json", *arguments)):
        if line[0] == "--json" and line[1:2] == ("serve",):
            continue
        result = run(FakeControlPlane({("POST", "/v1/fleets"): {}}), *line)
        problem = json.loads(result.stdout)
        assert result.exit_code == problem["code"] == Exit.USAGE
        assert problem["error"]
        assert problem["next_step"]
        assert "error: " in result.stderr


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 500])
def test_a_refusal_is_one_object_with_its_facts(status: int) -> None:
    detail = {"detail": "mode: 'x' is not allowed", "key": "mode", "value": "x", "allowed": "a, b"}
    plane = FakeControlPlane(problems={FLEET: (status, detail)})
    problem = told(plane, "fleet", "show", "live")
    assert problem["next_step"]
    assert problem["code"] == run(plane, "fleet", "show", "live").exit_code
    if status != 401:
        assert (problem["key"], problem["value"], problem["allowed"]) == ("mode", "x", "a, b")


def test_without_a_token_every_place_for_one_is_named() -> None:
    """`send one header` helps nobody at a terminal."""
    plane = FakeControlPlane(problems={FLEET: (401, {"detail": "send one header"})})
    result = run(plane, "fleet", "show", "live", environment={"STEADYFRAME_TOKEN": ""})
    said = " ".join(result.stderr.split())
    assert result.exit_code == Exit.NOT_AUTHORISED
    for place in ("--token-file", "STEADYFRAME_TOKEN_FILE", "STEADYFRAME_TOKEN", "admin.token"):
        assert place in said
    assert "header" not in said


def test_a_token_that_is_not_known_is_named_by_where_it_is_from() -> None:
    """A forgotten variable wins over the file that one has in mind."""
    plane = FakeControlPlane(problems={FLEET: (401, {"detail": "it is not known"})})
    result = run(plane, "fleet", "show", "live")
    assert "token of STEADYFRAME_TOKEN: it is not known" in " ".join(result.stderr.split())
    assert "sf_test" not in result.stderr


@pytest.fixture
def silent_server() -> Iterator[str]:
    """The address of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("by", ["option", "variable"])
def test_a_server_that_never_answers_is_given_up(silent_server: str, by: str) -> None:
    option = ("--timeout", "0.2") if by == "option" else ()
    variables = {"STEADYFRAME_URL": silent_server, "STEADYFRAME_TIMEOUT_S": "0.2"}
    plane: Any = None
    result = run(plane, "fleet", "list", *option, environment=variables)
    said = " ".join(result.stderr.split())
    assert result.exit_code == Exit.SERVER_AWAY
    assert "has not answered in time (0.2 s" in said
    assert "--timeout SECONDS" in said


def test_unless_said_an_answer_is_waited_for_ten_seconds_and_a_connection_for_five() -> None:
    client = Client("http://plane.test", token=None, transport=FakeControlPlane())
    assert client._http.timeout == httpx.Timeout(10.0, connect=5.0)
    assert (connection.TIMEOUT_S, CONNECT_TIMEOUT_S) == (10.0, 5.0)
    client.close()


def test_what_is_only_read_is_asked_for_once() -> None:
    """A second try of what did not come in time is as long a wait again."""
    plane = FakeControlPlane(error=httpx.ReadTimeout("no answer"))
    assert run(plane, "fleet", "list").exit_code == Exit.SERVER_AWAY
    assert len(plane.calls) == 1


@pytest.mark.parametrize(
    ("arguments", "problem", "listed", "near"),
    [
        (("fleet", "show", "liev"), ("fleet", "liev"), "/v1/fleets", "live"),
        (("canary", "show", "fused-1"), ("canary", "fused-1"), "/v1/canaries", "fused-11"),
        (("policy", "show", "dmeo"), ("policy", "dmeo"), "/v1/policies", "demo"),
        (
            ("worker", "show", "live", "worker-v"),
            ("worker", "worker-v"),
            "/v1/fleets/live/workers",
            "worker-a",
        ),
    ],
)
def test_a_name_that_is_not_there_brings_the_nearest_one(
    arguments: tuple[str, ...], problem: tuple[str, str], listed: str, near: str
) -> None:
    plural = {"policy": "policies", "canary": "canaries"}.get(problem[0], f"{problem[0]}s")
    path = f"/v1/fleets/live/workers/{problem[1]}" if near == "worker-a" else None
    asked = ("GET", path or f"/v1/{plural}/{problem[1]}")
    detail = {"detail": "no such thing", "kind": problem[0], "name": problem[1]}
    plane = FakeControlPlane(
        {("GET", listed): {"items": [{"name": near}, {"name": "quite-other"}]}},
        problems={asked: (404, detail)},
    )
    result = run(plane, *arguments)
    assert result.exit_code == Exit.NOT_FOUND
    assert f"did you mean {near}?" in result.stderr
    assert "quite-other" not in result.stderr
    assert f"steadyframe {problem[0]} list" in result.stderr


def step_after_a_wrong_variant(word: str, **routes: Any) -> str:
    """What is said to somebody who wrote `word` for a variant."""
    allowed = "fused_all, fused_small, fused_steady"
    detail = {"detail": "not allowed", "key": "variant", "value": word, "allowed": allowed}
    path = ("POST", "/v1/fleets/live/workers/worker-a/pins")
    there = {("GET", f"/v1/{name}"): {"items": items} for name, items in routes.items()}
    plane = FakeControlPlane(there, problems={path: (422, detail)})
    flip = ("flip", "live", "worker-a", "fused_allreduce", word, "--reason", "x", "--yes")
    step: str = told(plane, *flip)["next_step"]
    return step


FLAGS = [
    {
        "name": "fused_allreduce",
        "variants": [
            {"name": "fused_all", "is_canary_only": True},
            {"name": "fused_small", "is_canary_only": False},
            {"name": "fused_steady", "is_canary_only": False},
        ],
    }
]
FAILED = {"flag": "fused_allreduce", "variant": "fused_small", "standing": "disqualified"}


def test_a_word_that_is_not_allowed_brings_the_nearest_that_is() -> None:
    step = step_after_a_wrong_variant("fused_stedy", flags=FLAGS, qualifications=[])
    assert step.startswith("did you mean fused_s")
    assert "fused_steady" in step


@pytest.mark.parametrize("word", ["fused_al", "fused_smal", "fused_stedy", "fused"])
def test_nothing_that_must_not_run_is_proposed(word: str) -> None:
    """At night a proposal is copied as it stands."""
    step = step_after_a_wrong_variant(word, flags=FLAGS, qualifications=[FAILED])
    assert "fused_all" not in step
    assert "fused_small" not in step
    # What cannot be found out proposes nothing either.
    assert "did you mean" not in step_after_a_wrong_variant(word, flags=FLAGS)
    assert "did you mean" not in step_after_a_wrong_variant(word, qualifications=[])


def test_the_options_of_every_command_may_stand_before_it() -> None:
    plane = FakeControlPlane({("GET", "/v1/fleets/live/workers"): {"items": [WORKER]}})
    before = ("--url", "http://other.test", "--timeout", "3", "--json")
    result = run(plane, *before, "worker", "list", "live")
    assert json.loads(result.stdout) == [WORKER]
    assert plane.calls[0].headers["host"] == "other.test"


def test_the_options_between_group_and_command_say_where_they_go() -> None:
    result = run(FakeControlPlane(), "worker", "--url", "http://x.test", "list", "live")
    assert result.exit_code == Exit.USAGE
    assert "at the end of the command, or before its first word" in " ".join(result.stderr.split())


def test_an_address_that_nothing_asks_is_refused_not_ignored() -> None:
    result = run(FakeControlPlane(), "--url", "http://x.test", "serve", "--port", "70000")
    assert result.exit_code == Exit.USAGE


def test_an_address_with_a_password_is_refused_and_not_shown() -> None:
    result = run(FakeControlPlane(), "fleet", "list", "--url", "http://ada:secret@plane.test")
    assert result.exit_code == Exit.REFUSED
    assert "secret" not in result.output


def test_no_line_of_an_error_is_wider_than_eighty_columns_without_a_terminal() -> None:
    plane = FakeControlPlane(problems={FLEET: (409, {"detail": "a sentence of many words " * 30})})
    result = run(plane, "fleet", "show", "live")
    assert max(len(line) for line in result.stderr.splitlines()) <= 80
