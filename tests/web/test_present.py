"""What pages say, given values: no request, no markup."""

from datetime import timedelta
from typing import Any

import pytest

from controlplane.domain.canary import Phase
from controlplane.web.present import canary, gates, weekly, words
from controlplane.web.present.words import Tone
from tests.clock import START


def shown(phase: Phase, *gates: tuple[str, str], **changes: Any) -> dict[str, Any]:
    """A canary as the service shows it; the worst gate comes first."""
    return {
        "canary": {"phase": phase, "variant": "fused_all", "reason": "as it went"},
        "verdict": gates[0][1] if gates else None,
        "gates": [{"gate": name, "verdict": said, "reason": name} for name, said in gates],
        "workers": (),
        **changes,
    }


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0, "0 s"), (-5, "0 s"), (119, "119 s"), (120, "2 min"), (3600, "1 h 0 min"), (90000, "1 d")],
)
def test_durations_are_as_exact_as_of_use(seconds: int, said: str) -> None:
    assert words.duration(timedelta(seconds=seconds)) == said


def test_a_rate_below_the_floor_never_reads_as_the_floor() -> None:
    """23.998 is slow: rounding it to 24.00 would say that it is not."""
    assert words.fps(23.998) == "23.99"
    assert words.fps(24.0) == "24.00"
    assert words.fps(float("nan")) == words.fps(None) == words.NOTHING


@pytest.mark.parametrize(
    ("num_bytes", "said"),
    [(0, "0 B"), (1023, "1023 B"), (16 * 2**20, "16.0 MiB"), (2**40, "1024.0 GiB")],
)
def test_sizes_have_binary_units(num_bytes: int, said: str) -> None:
    assert words.size(num_bytes) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("plain – ü → עובד\n", "plain – ü → עובד\n"),  # noqa: RUF001 - a dash is one of them
        ("\u202egpj.exe\u202c", "\\u202egpj.exe\\u202c"),
        ("a\u200bb\x00c\x1b[2K\u2028", "a\\u200bb\\x00c\\x1b[2K\\u2028"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_shows_nothing_is_written_out(text: str, said: str) -> None:
    """A name that turns or hides the words around it says what is not so."""
    assert words.visible(text) == said


@pytest.mark.parametrize("phase", list(Phase))
def test_every_phase_has_an_answer(phase: Phase) -> None:
    answer = canary.answer(shown(phase, ("floor", "passing")))

    assert answer.word
    assert answer.why
    assert canary.tone(phase) in Tone


@pytest.mark.parametrize(
    ("verdict", "word", "tone"),
    [
        ("passing", "Safe so far", Tone.GOOD),
        ("inconclusive", "Safe so far", Tone.WATCH),
        ("unmeasured", "Not known", Tone.WATCH),
        ("failing", "Not safe", Tone.BAD),
    ],
)
def test_a_running_canary_is_as_safe_as_its_worst_gate(verdict: str, word: str, tone: Tone) -> None:
    answer = canary.answer(shown(Phase.PROGRESSING, ("floor", verdict), ("memory", "passing")))

    assert (answer.word, answer.tone) == (word, tone)


def test_a_held_canary_that_fails_is_not_called_held() -> None:
    """Its sessions are still on the variant until it is sent back."""
    assert canary.answer(shown(Phase.HELD, ("floor", "failing"))).word == "Not safe"


@pytest.mark.parametrize("phase", list(Phase))
def test_a_canary_of_a_stack_is_spoken_of_by_its_stack(phase: Phase) -> None:
    told = shown(phase, ("floor", "passing"))
    both = {"flag": None, "variant": None, "baseline": None}
    stacks = {"old_stack": "aaaa", "stack": "bbbb", "variants": {"fused_allreduce": "nccl"}}
    told["canary"] |= both | stacks
    assert "None" not in canary.answer(told).why
    assert canary.change(told["canary"]) == "stack: aaaa → bbbb, both with fused_allreduce=nccl"


def test_nothing_judged_is_not_known_rather_than_safe() -> None:
    assert canary.answer(shown(Phase.PROGRESSING)).word == "Not known"


def test_gates_that_fail_come_first_with_their_numbers() -> None:
    results: list[dict[str, Any]] = [
        {"gate": "freshness", "verdict": "passing", "value": 0.42, "limit": 6.0},
        {"gate": "memory", "verdict": "failing", "value": 16 * 2**20, "limit": 2**20},
    ]
    told = [{**one, "num_samples": 1, "reason": "", "failed_at": None} for one in results]

    first, second = gates.shown(told, now=START)

    assert (first.name, first.value, first.limit) == ("memory", "16.0 MiB", "1.0 MiB")
    assert (second.value, second.limit) == ("0.4 s", "6.0 s")


def test_the_weekly_report_keeps_mixed_and_synthetic_sessions_apart() -> None:
    row = {"week": "2026-W45", "fleet": "main", "hardware": "cpu", "flags": {"f": "v"}}
    counts = {"num_sessions": 8, "num_rated": 4, "num_slow": 1, "num_very_slow": 0, "num_failed": 2}

    live, synthetic = weekly.view(
        [
            {**row, **counts},
            {**row, **counts, "is_mixed": True},
            {**row, **counts, "is_synthetic": True},
        ]
    )

    assert (len(live.rows), len(live.mixed), len(synthetic.rows)) == (1, 1, 1)
    assert (live.rows[0].slow, live.rows[0].very_slow, live.rows[0].failed) == (
        "25.0 %",
        "0.0 %",
        "25.0 %",
    )
    assert live.headline.startswith("2026-W45: 25.0 % slow, 0.0 % very slow of 8 rated sessions")


@pytest.mark.parametrize("other", [{"stack": "2222222222222222"}, {"is_imported": True}])
def test_rows_that_differ_in_what_has_no_column_do_not_look_alike(other: dict[str, Any]) -> None:
    row = {"week": "2026-W45", "fleet": "main", "hardware": "cpu", "stack": "1111111111111111"}

    (alone,) = weekly.view([row])
    (both,) = weekly.view([row, {**row, **other}])

    assert alone.rows[0].stack == ""
    assert len(set(both.rows)) == 2


def test_a_stack_is_told_by_its_first_digits() -> None:
    row = {"week": "2026-W45", "fleet": "main"}

    (section,) = weekly.view([{**row, "stack": digit * 16} for digit in "12"])

    assert [one.stack for one in section.rows] == ["11111111", "22222222"]


def test_live_and_imported_sessions_of_a_fleet_are_both_named() -> None:
    row = {"week": "2026-W45", "fleet": "main", "flags": {"f": "v"}}

    (section,) = weekly.view([row, {**row, "is_imported": True}])

    assert section.title == "live and imported sessions"
    assert [one.kind for one in section.rows] == ["f=v", "f=v (imported)"]


def test_a_week_without_rated_sessions_has_no_rate() -> None:
    (section,) = weekly.view([{"week": "2026-W45", "fleet": "main", "num_sessions": 1}])

    assert section.chart is None
    assert section.rows[0].slow == words.NOTHING


def test_the_report_of_nothing_is_empty() -> None:
    assert weekly.view([]) == ()
