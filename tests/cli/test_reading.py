"""Commands that only read: what a person sees, and what a script gets."""

import json
from typing import Any

from tests.cli.fake import FakeControlPlane, run

WORKER: dict[str, Any] = {
    "name": "worker-a",
    "hardware": "cpu",
    "stack": "0123456789abcdef",
    "effective_flags": {"fused_allreduce": "nccl"},
    "desired_flags": {"fused_allreduce": "nccl"},
    "effective_generation": 4,
    "desired_generation": 4,
    "is_effective": True,
    "trip": None,
    "pins": [],
    "last_seen_at": "2026-11-30T19:08:36.123456+00:00",
}
CANARY: dict[str, Any] = {
    "name": "fused-allreduce-3",
    "fleet": "live",
    "flag": "fused_allreduce",
    "variant": "fused_all",
    "baseline": "nccl",
    "phase": "rolled_back",
    "step": 0,
    "reason": "memory failing: 8 MiB for each length, 1 MiB allowed",
    "phase_since": "2026-11-30T19:08:36+00:00",
    "gates": [{"gate": "memory", "verdict": "failing", "reason": "8 MiB for each length"}],
    "workers": [{"worker": "worker-a", "contained_at": "2026-11-30T19:08:37+00:00"}],
}


def page(*items: Any, cursor: str | None = None) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": cursor}


def test_json_is_the_only_thing_on_stdout() -> None:
    """A script pipes stdout into a parser."""
    plane = FakeControlPlane({("GET", "/v1/fleets/live/workers"): page(WORKER)})
    result = run(plane, "worker", "list", "live", "--json")
    assert json.loads(result.stdout) == [WORKER]
    assert result.exit_code == 0


def test_a_table_fits_eighty_columns_and_has_no_colour_without_a_terminal() -> None:
    """Logs and narrow consoles are where it is read at night."""
    fleet = {"name": "live", "stopped_reason": None}
    plane = FakeControlPlane(
        {("GET", "/v1/fleets/live"): fleet, ("GET", "/v1/fleets/live/workers"): page(WORKER)}
    )
    result = run(plane, "worker", "list", "live")
    assert "worker-a" in result.stdout
    assert "nccl" in result.stdout
    assert "\x1b" not in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


def test_a_list_follows_every_page() -> None:
    """A fleet of a thousand workers is not cut off at the first page, in silence."""
    pages = iter([page(CANARY, cursor="next"), page({**CANARY, "name": "fused-allreduce-2"})])

    class Paged(FakeControlPlane):
        def handle_request(self, request: Any) -> Any:
            self.routes = {("GET", "/v1/canaries"): next(pages)}
            return FakeControlPlane.handle_request(self, request)

    paged = Paged()
    result = run(paged, "canary", "list", "--json")
    assert [each["name"] for each in json.loads(result.stdout)] == [
        "fused-allreduce-3",
        "fused-allreduce-2",
    ]
    assert paged.calls[1].query["cursor"] == "next"


def test_a_list_of_canaries_fits_the_screen_and_one_of_them_has_all_of_its_reason() -> None:
    """Sixteen lines for each canary are no list."""
    long = {**CANARY, "reason": "out of memory and other words " * 12 + "the end"}
    plane = FakeControlPlane(
        {
            ("GET", "/v1/canaries"): page(long, long),
            ("GET", "/v1/canaries/fused-allreduce-3"): long,
        }
    )
    listed = run(plane, "canary", "list").stdout
    assert len(listed.splitlines()) <= 2 + 2 * 6
    assert max(len(line) for line in listed.splitlines()) <= 80
    assert "the end" in run(plane, "canary", "show", "fused-allreduce-3").stdout


def test_a_canary_shows_its_reason_gates_and_workers() -> None:
    """The three questions of whoever was woken: what, why, and is it over."""
    plane = FakeControlPlane({("GET", "/v1/canaries/fused-allreduce-3"): CANARY})
    result = run(plane, "canary", "show", "fused-allreduce-3")
    for text in ("rolled_back", "8 MiB for each length", "failing", "worker-a", "19:08:37Z"):
        assert text in result.stdout


def test_explain_prints_layer_and_reason_of_each_flag() -> None:
    """Why a worker runs what it runs is answered by the layer that won."""
    reason = {
        "flag": "fused_allreduce",
        "variant": "nccl",
        "layer": "stop_the_line",
        "reason": "frozen frames",
    }
    path = "/v1/fleets/live/workers/worker-a"
    plane = FakeControlPlane(
        {("GET", f"{path}/explain"): {"reasons": [reason]}, ("GET", path): WORKER}
    )
    result = run(plane, "worker", "explain", "live", "worker-a")
    assert "stop_the_line" in result.stdout
    assert "frozen frames" in result.stdout
    assert "steadyframe lift live" in result.stdout
    assert "steadyframe lift live" in result.stdout


def test_an_empty_list_says_what_to_do() -> None:
    """A new user sees the next command, not an empty table."""
    plane = FakeControlPlane({("GET", "/v1/fleets"): page()})
    assert "steadyframe fleet adopt" in run(plane, "fleet", "list").stdout


def test_markup_in_a_reason_is_shown_as_it_is() -> None:
    """What a colleague typed must not change colours or vanish."""
    stopped = {"name": "live", "mode": "enforce", "stopped_reason": "[red]see #42[/red]"}
    plane = FakeControlPlane(
        {("GET", "/v1/fleets/live"): stopped, ("GET", "/v1/fleets/live/workers"): page()}
    )
    assert "[red]see #42[/red]" in run(plane, "fleet", "show", "live").stdout


def test_a_canary_of_a_stack_shows_both_stacks_and_what_they_run() -> None:
    stacked = {
        **CANARY,
        "name": "stack-1",
        "subject": "stack",
        "flag": None,
        "variant": None,
        "baseline": None,
        "old_stack": "aaaa",
        "stack": "bbbb",
        "variants": {"fused_allreduce": "fused_steady"},
    }
    plane = FakeControlPlane({("GET", "/v1/canaries/stack-1"): stacked})
    shown = run(plane, "canary", "show", "stack-1").output
    assert "stack: aaaa -> bbbb, both with fused_allreduce=fused_steady" in " ".join(shown.split())
    plane = FakeControlPlane({("GET", "/v1/canaries"): page(stacked)})
    listed = run(plane, "canary", "list").output
    assert "stack bbbb" in listed
    assert "None" not in shown + listed
