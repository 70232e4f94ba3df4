"""`steadyframe qualification`: what a person sees, and what is sent."""

import json
from typing import Any

import pytest

from controlplane.cli.exits import Exit
from tests.cli.fake import EFFECT, FakeControlPlane, run

FAILED: dict[str, Any] = {
    "number": 12,
    "standing": "disqualified",
    "origin": "canary",
    "flag": "fused_allreduce",
    "variant": "fused_all",
    "hardware": "h100x4",
    "stack": "0123456789abcdef",
    "fleet": None,
    "canary": "fused-allreduce-3",
    "decision": "decision-9",
    "evidence_digest": "e" * 64,
    "basis": {"num_rated": 200, "num_slow": 3, "num_sessions": 250, "num_failed": 1},
    "slow_rate": 0.015,
    "failure_rate": 0.004,
    "actor": "steadyframe",
    "reason": "memory: keeps 16 MiB",
    "created_at": "2026-11-30T19:08:36.123456+00:00",
    "revoked_at": None,
    "revoked_by": None,
    "revoked_reason": None,
}
SAID: dict[str, Any] = {
    **FAILED,
    "number": 7,
    "standing": "qualified",
    "origin": "attested",
    "fleet": "live",
    "canary": None,
    "decision": None,
    "evidence_digest": None,
    "basis": None,
    "slow_rate": None,
    "failure_rate": None,
    "actor": "ada",
    "reason": "ran well for seven weeks",
    "revoked_at": "2026-11-30T20:00:00+00:00",
    "revoked_by": "grace",
    "revoked_reason": "another build",
}
SHOWN = {
    **FAILED,
    "is_current": True,
    "attempt": 2,
    "history": [{**FAILED, "is_current": True}, {**SAID, "is_current": False}],
}


def page(*items: Any) -> dict[str, Any]:
    return {"items": list(items), "next_cursor": None}


def test_a_list_says_what_stands_how_and_by_what() -> None:
    short = {"flag": "kv_cache", "variant": "fp8"}
    records = ({**FAILED, **short, "canary": "kv-cache-3"}, {**SAID, **short})
    plane = FakeControlPlane({("GET", "/v1/qualifications"): page(*records)})

    result = run(plane, "qualification", "list")

    assert result.exit_code == Exit.OK
    for text in ("disqualified", "kv_cache", "fp8", "kv-cache-3", "ada, for live", "12", "h100x4"):
        assert text in result.stdout
    assert "fleet" not in plane.calls[0].query


def test_a_list_is_of_one_fleet_where_one_is_named() -> None:
    plane = FakeControlPlane({("GET", "/v1/qualifications"): page(SAID)})

    run(plane, "qualification", "list", "live")

    assert plane.calls[0].query["fleet"] == "live"


def test_a_narrow_list_stays_within_the_terminal() -> None:
    plane = FakeControlPlane({("GET", "/v1/qualifications"): page(FAILED, SAID)})

    result = run(plane, "qualification", "list")

    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize("others", [(), ({**SAID, "flag": "kv_cache", "variant": "fp8"},)])
def test_no_word_of_a_narrow_list_is_broken(others: tuple[dict[str, Any], ...]) -> None:
    """A name that stands in two lines can be neither searched for nor copied."""
    records = (FAILED, {**FAILED, "variant": "fused_small_tiles", "canary": "fused-allreduce-12"})
    plane = FakeControlPlane({("GET", "/v1/qualifications"): page(*records, *others)})

    words = run(plane, "qualification", "list").stdout.split()

    for word in ("disqualified", "fused_all", "fused_small_tiles", "fused_allreduce", "h100x4"):
        assert word in words
    for word in ("fused-allreduce-3", "fused-allreduce-12", "01234567"):
        assert word in words


def test_an_empty_list_says_how_something_comes_there() -> None:
    plane = FakeControlPlane({("GET", "/v1/qualifications"): page()})

    assert "canary" in run(plane, "qualification", "list").stdout


def test_a_record_is_shown_with_its_evidence_and_its_history() -> None:
    plane = FakeControlPlane({("GET", "/v1/qualifications/12"): SHOWN})

    result = run(plane, "qualification", "show", "12")

    for text in (
        "decision-9",
        "e" * 64,
        "3 of 200 (1.50%)",
        "1 of 250 (0.40%)",
        "every fleet",
        "memory: keeps 16 MiB",
        "7 qualified, revoked by ada, for live",
    ):
        assert text in result.stdout


def test_what_was_never_counted_is_shown_as_no_rate() -> None:
    """A person's word has no sessions behind it, and must not look like zero slow ones."""
    shown = {**SAID, "is_current": False, "attempt": 1, "history": []}
    plane = FakeControlPlane({("GET", "/v1/qualifications/7"): shown})

    told = run(plane, "qualification", "show", "7").stdout

    slow = next(line for line in told.splitlines() if line.split()[:1] == ["slow"])
    assert slow.split() == ["slow", "-"]
    assert "2026-11-30 20:00:00Z by grace: another build" in told


def test_json_is_the_answer_alone() -> None:
    plane = FakeControlPlane(
        {
            ("GET", "/v1/qualifications"): page(FAILED),
            ("GET", "/v1/qualifications/12"): SHOWN,
        }
    )

    assert json.loads(run(plane, "qualification", "list", "--json").stdout) == [FAILED]
    assert json.loads(run(plane, "qualification", "show", "12", "--json").stdout) == SHOWN


CHANGES = [
    (
        ("attest", "live", "fused_allreduce", "fused_steady"),
        "/v1/fleets/live/attestations",
        {"flag": "fused_allreduce", "variant": "fused_steady"},
    ),
    (
        (
            *("attest", "live", "fused_allreduce", "fused_steady"),
            *("--hardware", "cpu", "--stack", "0123"),
        ),
        "/v1/fleets/live/attestations",
        {"flag": "fused_allreduce", "variant": "fused_steady", "hardware": "cpu", "stack": "0123"},
    ),
    (("revoke", "12"), "/v1/qualifications/12/revoke", {}),
]


@pytest.mark.parametrize(("arguments", "path", "body"), CHANGES)
def test_a_change_is_told_first_and_made_on_a_yes(
    arguments: tuple[str, ...], path: str, body: dict[str, object]
) -> None:
    plane = FakeControlPlane({("POST", path): {"number": 12}})
    command = ("qualification", *arguments, "--reason", "because")

    told = run(plane, *command)
    assert (told.exit_code, plane.made) == (Exit.USAGE, [])
    assert EFFECT in told.stderr

    done = run(plane, *command, "--yes", "--json")
    assert done.exit_code == Exit.OK, done.output
    assert json.loads(done.stdout) == {"number": 12}
    assert [call.body for call in plane.made] == [{**body, "reason": "because"}]


@pytest.mark.parametrize(("arguments", "path", "body"), CHANGES)
def test_no_change_is_made_without_a_reason(
    arguments: tuple[str, ...], path: str, body: dict[str, object]
) -> None:
    del body
    plane = FakeControlPlane({("POST", path): {}})

    result = run(plane, "qualification", *arguments, "--yes")

    assert (result.exit_code, plane.calls) == (Exit.USAGE, [])
    assert "--reason" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "../tokens"),
        ("revoke", "0"),
        ("revoke", "-1"),
        ("list", "../tokens"),
        ("attest", "../tokens", "fused_allreduce", "fused_steady"),
        ("attest", "live", "fused_allreduce", "fused_steady", "--stack", "a/b"),
    ],
)
def test_what_cannot_be_a_name_or_a_number_is_refused_before_anything_is_sent(
    arguments: tuple[str, ...],
) -> None:
    """An argument becomes part of a path."""
    plane = FakeControlPlane()
    why = ("--reason", "x", "--yes") if arguments[0] in ("revoke", "attest") else ()

    result = run(plane, "qualification", *arguments, *why)

    assert result.exit_code in (Exit.REFUSED, Exit.USAGE)
    assert plane.calls == []
