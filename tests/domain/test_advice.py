"""What a policy can and cannot show is said before a canary rests on it."""

import random

import pytest

from controlplane.domain import advice, rehearsal
from controlplane.domain.advice import Answer, Weight
from controlplane.domain.policy import Policy, RegressionGate
from controlplane.domain.rehearsal import Shape, Streams, Traffic
from tests.domain import build
from tests.domain.build import seconds

FRESHNESS: dict[str, object] = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
FLOOR: dict[str, object] = {"gate": "floor", "metric": "session_fps", "at_least": 24.0}
REGRESSION: dict[str, object] = {"gate": "regression", "metric": "evidence_of_harm"}
PARITY: dict[str, object] = {"gate": "non_inferiority", "metric": "evidence_of_parity"}
SERVED = Traffic(num_workers=20, sessions_per_day=10_000, slow_rate=0.007, failure_rate=0.002)
SHAPE = Shape(canary=10, control=40, lasts=seconds(60))


def step(**changes: object) -> dict[str, object]:
    base: dict[str, object] = {
        "name": "one",
        "workers": "50%",
        "bake": "10s",
        "least_sessions": 100,
        "arm_share": "20%",
    }
    return {**base, **changes}


def told(policy: Policy, served: Traffic | None = SERVED) -> list[Answer]:
    draw = random.Random(1).random
    return list(advice.answers(policy, flag=build.catalogue()[0], served=served, draw=draw))


def of(about: str, found: list[Answer]) -> list[Answer]:
    return [answer for answer in found if answer.about == about]


def test_a_floor_on_live_traffic_is_told_by_how_many_healthy_canaries_it_sends_back() -> None:
    """Half of them after 100 sessions at 0.7 %: the source's rule is for the soak."""
    (answer,) = of("gates.floor", told(build.policy(gates=[FLOOR, FRESHNESS], steps=[step()])))
    assert answer.weight is Weight.WARNING
    assert "at 0.70% slow sessions 50% of healthy canaries are rolled back" in answer.text
    soak = build.policy(gates=[FLOOR, FRESHNESS], steps=[step(traffic="synthetic")])
    assert not of("gates.floor", told(soak))


def test_a_clean_run_is_told_by_the_rate_that_it_excludes() -> None:
    policy = build.policy(steps=[step(least_sessions=720)])
    (answer,) = of("steps", told(policy, None))
    assert "excludes a slow rate of 0.415% and above" in answer.text


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"steps": [step(least_sessions=1)], "gates": "failures"}, "gates.failures.at_most"),
        ({"gates": [FRESHNESS, {**REGRESSION, "hold_at": 1}]}, "gates.regression.hold_at"),
        ({"gates": "lengths"}, "gates.memory.least_lengths"),
    ],
)
def test_what_can_never_happen_is_said(changes: dict[str, object], about: str) -> None:
    gates: dict[object, list[dict[str, object]]] = {
        "failures": [FRESHNESS, {"gate": "failures", "metric": "failed_sessions", "at_most": 1}],
        "lengths": [
            FRESHNESS,
            {
                "gate": "memory",
                "metric": "retained_bytes_per_length",
                "at_most": "1MiB",
                "least_lengths": 20,
                "domain_lengths": 10,
            },
        ],
    }
    if isinstance(name := changes.get("gates"), str):
        changes = {**changes, "gates": gates[name]}
    (answer,) = of(about, told(build.policy(**changes), None))
    assert answer.weight is Weight.NEVER


def test_a_step_that_this_traffic_cannot_decide_in_time_is_said() -> None:
    asked: dict[str, object] = {
        "gates": [FRESHNESS, REGRESSION, PARITY],
        "steps": [step(margin="1%")],
    }
    quiet = Traffic(num_workers=20, sessions_per_day=100, slow_rate=0.007, failure_rate=0.002)
    asked["limits"] = {"block": "30m", "hold_after": "2h"}
    (busy,) = of("steps.one", told(build.policy(**asked)))
    assert busy.weight is Weight.TOLD
    late = of("steps.one", told(build.policy(**asked), quiet))
    (told_late,) = [answer for answer in late if "must be decided within 1d" in answer.text]
    assert told_late.weight is Weight.NEVER


def test_whole_workers_as_arms_are_warned_of() -> None:
    policy = build.policy(gates=[FRESHNESS, REGRESSION], steps=[step(arm_share="100%")])
    (answer,) = of("steps.arm_share", told(policy, None))
    assert answer.weight is Weight.WARNING


def test_live_steps_without_controls_and_alarms_without_parity_are_warned_of() -> None:
    alone = told(build.policy(gates=[FRESHNESS], steps=[step()]), None)
    assert any("compared with no control" in answer.text for answer in alone)
    alarmed = told(build.policy(gates=[FRESHNESS, REGRESSION], steps=[step()]), None)
    assert any("ask non_inferiority" in answer.text for answer in alarmed)


def streams(seed: int, **rates: float) -> Streams:
    served = Traffic(
        num_workers=20,
        sessions_per_day=10_000,
        slow_rate=rates.get("slow", 0.007),
        failure_rate=rates.get("failed", 0.002),
    )
    return Streams(shape=SHAPE, served=served, num=60, draw=random.Random(seed).random)


def test_simulated_canaries_are_sent_back_as_rarely_as_promised() -> None:
    """At a limit of 2 half of them may be: the count is of something."""
    share = rehearsal.false_rollbacks(RegressionGate(), streams(3), num_sessions=200)
    assert share <= 0.03
    eager = RegressionGate(at_most=2, hold_at=1)
    assert 0.02 < rehearsal.false_rollbacks(eager, streams(3, slow=0.07), num_sessions=200) <= 0.55


def test_smaller_margins_and_worse_weeks_need_more_sessions() -> None:
    """Medians of the study: 140, 240 and 700 sessions for three, two and one points."""
    by_margin = [
        rehearsal.sessions_to_promote(streams(5), margin=margin, at_least=20, most=5000)
        for margin in (0.03, 0.02, 0.01)
    ]
    assert None not in by_margin
    assert sorted(num or 0 for num in by_margin) == by_margin
    bad = rehearsal.sessions_to_promote(streams(5, slow=0.07), margin=0.03, at_least=20, most=5000)
    assert (bad or 0) > (by_margin[0] or 0)
    assert (
        rehearsal.sessions_to_promote(streams(5, slow=0.07), margin=0.01, at_least=20, most=100)
        is None
    )


def test_a_step_without_two_drawn_arms_has_no_shape() -> None:
    policy = build.policy(steps=[step(arm_share="100%")])
    assert rehearsal.shape(policy, policy.steps[0], SERVED) is None
    drawn = build.policy(steps=[step()])
    assert rehearsal.shape(drawn, drawn.steps[0], SERVED) is not None


def test_what_happens_late_or_perhaps_never_is_a_warning() -> None:
    slow = build.policy(
        steps=[step(bake="2d")], gates=[FRESHNESS, REGRESSION], limits={"hold_after": "1m"}
    )
    for about in ("steps[0].bake", "limits.hold_after"):
        (answer,) = of(about, told(slow, None))
        assert answer.weight is Weight.WARNING


@pytest.mark.parametrize(
    ("per_day", "weight"), [(50_000, None), (8000, Weight.WARNING), (100, Weight.NEVER)]
)
def test_windows_in_which_nobody_is_compared_are_told(
    per_day: float, weight: Weight | None
) -> None:
    """A window of a minute with one session in it shows nothing, however many there are."""
    policy = build.policy(
        gates=[FRESHNESS, REGRESSION, PARITY],
        steps=[step(margin="5%", workers=1)],
        limits={"decide_within": "30d"},
    )
    served = Traffic(num_workers=4, sessions_per_day=per_day, slow_rate=0.007, failure_rate=0.002)
    answers = [one for one in of("steps.one", told(policy, served)) if "windows of 1m" in one.text]
    assert [one.weight for one in answers] == ([weight] if weight else [])


def test_a_fleet_of_one_worker_has_nobody_to_compare_with() -> None:
    alone = Traffic(num_workers=1, sessions_per_day=100, slow_rate=0.0, failure_rate=0.0)
    (answer,) = of("steps.workers", told(build.policy(gates=[FRESHNESS, REGRESSION]), alone))
    assert answer.weight is Weight.NEVER


@pytest.mark.parametrize(
    "served",
    [
        Traffic(num_workers=200, sessions_per_day=1e8, slow_rate=0.007, failure_rate=0.002),
        Traffic(num_workers=2, sessions_per_day=1, slow_rate=0.0, failure_rate=0.0),
        Traffic(num_workers=20, sessions_per_day=10_000, slow_rate=0.5, failure_rate=0.5),
    ],
)
def test_any_traffic_is_answered(served: Traffic) -> None:
    policy = build.policy(
        gates=[FRESHNESS, REGRESSION, PARITY], steps=[step(margin="10%")], limits={"block": "1h"}
    )
    assert told(policy, served)


def test_a_margin_that_cannot_be_shown_is_given_up_soon() -> None:
    few = Streams(shape=SHAPE, served=SERVED, num=4, draw=random.Random(1).random)
    assert rehearsal.sessions_to_promote(few, margin=0.0001, at_least=20, most=20_000) is None
