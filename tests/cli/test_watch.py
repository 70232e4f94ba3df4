"""`steadyframe canary watch`: how it ends is what a script goes by."""

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import httpx
import pytest
from rich.console import Console

from controlplane.cli import watching
from controlplane.cli.client import Client
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.watching import Patience
from tests.cli.fake import FakeControlPlane, run

NAME = "fused-allreduce-3"
PATH = ("GET", f"/v1/canaries/{NAME}")


def canary(phase: str, **changes: Any) -> dict[str, Any]:
    return {
        "canary": {
            "name": NAME,
            "fleet": "live",
            "flag": "fused_allreduce",
            "baseline": "nccl",
            "variant": "[red]fused_steady",
            "phase": phase,
            "step": 0,
            "bake_s": 4.0,
            "reason": "because [bold]",
        },
        "steps": [{"name": "one", "bake_s": 10.0}],
        "gates": [{"gate": "floor", "verdict": "passing", "reason": "all above"}],
        "workers": [{"worker": "worker-a"}],
        **changes,
    }


class Told(FakeControlPlane):
    """Answers with one canary after the other; an exception among them is raised."""

    def __init__(self, answers: Iterable[Any]) -> None:
        super().__init__()
        self.answers = iter(answers)
        self.num_asked = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.num_asked += 1
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        self.routes = {PATH: answer}
        return FakeControlPlane.handle_request(self, request)


def follow(
    *answers: Any, patience_s: float = 5, each_takes_s: float = 0
) -> tuple[Exit, list[str], list[float]]:
    plane = Told(answers)
    client = Client("http://plane.test", token=None, transport=plane)
    shown: list[str] = []
    waits: list[float] = []

    def show(found: Mapping[str, Any]) -> None:
        shown.append(found["canary"]["phase"])

    patience = Patience(
        seconds=patience_s,
        wait=waits.append,
        now=lambda: sum(waits) + plane.num_asked * each_takes_s,
    )
    ended = watching.follow(client, NAME, patience=patience, show=show)
    return ended, shown, waits


@pytest.mark.parametrize(
    ("phase", "exit_code"),
    [
        ("promoted", Exit.OK),
        ("rolled_back", Exit.ROLLED_BACK),
        ("held", Exit.HELD),
        ("cancelled", Exit.CANCELLED),
    ],
)
def test_the_exit_code_says_how_the_canary_ended(phase: str, exit_code: Exit) -> None:
    ended, shown, _ = follow(canary("pending"), canary("progressing"), canary(phase))
    assert (ended, shown) == (exit_code, ["pending", "progressing", phase])


def test_it_waits_while_the_control_plane_is_started_again() -> None:
    """An upgrade in the middle of a canary is no end of it."""
    away = [httpx.ConnectError("refused") for _ in range(3)]
    ended, shown, waits = follow(canary("baking"), *away, canary("promoted"))
    assert (ended, shown, len(waits)) == (Exit.OK, ["baking", "promoted"], 4)


def test_a_control_plane_that_stays_away_ends_the_watch() -> None:
    away = [httpx.ConnectError("refused") for _ in range(9)]
    with pytest.raises(CliError) as ended:
        follow(canary("baking"), *away)
    assert ended.value.exit_code is Exit.SERVER_AWAY


def test_the_time_that_tries_take_counts_against_patience() -> None:
    """One that hangs takes its whole time-out each time: 300 tries would be an hour."""
    hung = [httpx.ReadTimeout("no answer") for _ in range(3)]
    with pytest.raises(CliError, match="has not answered"):
        follow(canary("baking"), *hung, canary("promoted"), patience_s=30, each_takes_s=10)


@pytest.mark.parametrize(
    ("plane", "exit_code"),
    [
        (FakeControlPlane(error=httpx.ConnectError("refused")), Exit.SERVER_AWAY),
        (FakeControlPlane(), Exit.NOT_FOUND),
    ],
)
def test_what_is_wrong_from_the_start_is_said_at_once(
    plane: FakeControlPlane, exit_code: Exit
) -> None:
    """A wrong name or address is no restart."""
    assert run(plane, "canary", "watch", NAME).exit_code == exit_code


def test_without_a_terminal_each_change_is_one_line() -> None:
    result = run(FakeControlPlane({PATH: canary("rolled_back")}), "canary", "watch", NAME)
    assert result.exit_code == Exit.ROLLED_BACK
    assert result.stdout.splitlines() == [
        f"{NAME}: rolled_back, step 1: because [bold]",
        "floor is passing",
    ]


def test_json_is_the_canary_at_its_end_alone() -> None:
    plane = FakeControlPlane({PATH: canary("held")})
    result = run(plane, "canary", "watch", NAME, "--json")
    assert json.loads(result.stdout)["canary"]["phase"] == "held"


def test_the_picture_shows_bake_gates_and_workers_and_no_markup_of_others() -> None:
    out = io.StringIO()
    Console(file=out, width=80).print(watching.picture(canary("baking")))
    text = out.getvalue()
    for part in ("[red]fused_steady", "because [bold]", "baked 4 of 10 s", "floor", "worker-a"):
        assert part in text
