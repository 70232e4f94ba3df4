"""How the benchmark of the decision scores: peers, time, steps, qualification and the chart."""

import xml.etree.ElementTree as ET
from itertools import pairwise
from math import log
from typing import Any

import numpy as np
import pytest

from controlplane.domain import eprocess, rates
from tests.bench.decision import (
    chart,
    kayenta,
    peers,
    report,
    score,
    steps,
    streams,
    timeline,
)
from tests.bench.decision.chart import Point
from tests.bench.decision.streams import Arm, Streams


def arm(bad: list[list[int]], size: int, *, failed: bool = False) -> Arm:
    """Sessions of one stratum, 1 where slow, or where failed."""
    is_bad = np.array(bad, dtype=bool)
    none = np.zeros_like(is_bad)
    return Arm(
        num_a_block=size,
        stratum=np.zeros(is_bad.shape[1], dtype=np.int64),
        failed=is_bad if failed else none,
        slow=none if failed else is_bad,
        fps=np.where(is_bad, np.nan if failed else 23.0, 24.5),
    )


def of_canary(bad_by_interval: list[int]) -> Streams:
    """One stream with so many slow canary sessions in each interval, and a clean control."""
    canary = [[int(place < bad) for bad in bad_by_interval for place in range(10)]]
    return Streams(
        name="hand", canary=arm(canary, 10), control=arm([[0] * 40 * len(bad_by_interval)], 40)
    )


def test_counters_of_failed_intervals_act_as_documented() -> None:
    """Argo acts above its limit; Flagger's count is never reset; a consecutive one is."""
    found = of_canary([1, 0, 1, 1, 0, 1, 1, 1, 2])
    assert peers.floor(found).tolist() == [0]
    assert peers.intervals(found, num_failed=1).tolist() == [0]
    assert peers.intervals(found, num_failed=4).tolist() == [5]
    assert peers.intervals(found, num_failed=5).tolist() == [6]
    assert peers.intervals(found, num_failed=3, consecutive=True).tolist() == [7]
    assert peers.intervals(found, num_bad=2, num_failed=1).tolist() == [8]
    assert peers.intervals(found, num_bad=3, num_failed=1).tolist() == [9]
    assert peers.total(found, at_least=6).tolist() == [7]


def test_kayenta_s_judge_gives_its_published_intervals() -> None:
    """Kayenta's own test suite, and the sample of spinnaker issue 6278 that its judge passes."""
    found = kayenta.interval(
        np.array([10.0, 20.0, 30.0, 40.0]), np.array([1.0, 2.0, 3.0, 4.0]), confidence=0.95
    )
    assert found == pytest.approx((6.0, 39.0, 22.5), abs=1e-9)
    grossly_worse = np.array([100.0] * 7 + [1.0] * 3)
    low, high, estimate = kayenta.interval(grossly_worse, np.ones(10))
    assert low == pytest.approx(6.825022991538781e-05, rel=1e-9)
    assert high == pytest.approx(99.0)
    assert estimate == pytest.approx(98.99992904170193, rel=1e-9)
    assert low < kayenta.TOLERANCE * estimate  # so it passes


@pytest.mark.parametrize(
    ("bad", "canary", "control_bad", "control", "expected"),
    [(3, 10, 0, 40, 0.006122449), (4, 50, 2, 200, 0.015735227), (28, 400, 11, 1600, 2.2585e-12)],
)
def test_fisher_s_test_has_the_values_of_scipy(
    bad: int, canary: int, control_bad: int, control: int, expected: float
) -> None:
    found = peers._upper_tail(bad, bad + control_bad, canary, canary + control)
    assert found == pytest.approx(expected, rel=1e-4)


def test_group_sequential_bounds_are_those_of_another_program() -> None:
    """spotify-confidence 4.1.0, `bounds(t, alpha, rho, 8, 1)`."""
    five = peers.lan_demets(5, lambda share: 0.025 * share)
    assert five[[0, 1, 2, 4]] == pytest.approx([2.57583, 2.49193, 2.41077, 2.27545], abs=2e-3)
    forty = peers.lan_demets(40, lambda share: 0.01 * share**2)
    assert forty[[0, 1, 2, 39]] == pytest.approx([4.36868, 4.11324, 3.96934, 2.63085], abs=5e-3)


def test_a_failure_counts_at_once_against_all_that_run_by_the_logrank_factor() -> None:
    """ter Schure et al. 2024: OR^d over the mean of it among those at risk."""
    canary = arm([[1, 1]], 2, failed=True)
    control = arm([[0, 0, 0, 0, 0, 0, 0, 0]], 8)
    times = timeline.Timeline(
        canary=timeline.ArmTimes(
            started_s=np.array([[0.0, 10.0]]),
            judged_s=np.array([[120.0, 30.0]]),
            ended_s=np.array([[500.0, 30.0]]),
        ),
        control=timeline.ArmTimes(
            started_s=np.arange(8.0)[None] * 6,  # 6 have begun at 30 s
            judged_s=np.arange(8.0)[None] * 6 + 9,
            ended_s=np.arange(8.0)[None] * 6 + 9,  # 4 are over before
        ),
    )
    found = Streams(name="hand", canary=canary, control=control)
    (at_s, value), (later_s, later_value) = next(steps._failures(found, times))
    at_risk = (2, 2)
    factors = [
        ratio / ((at_risk[0] * ratio + at_risk[1]) / sum(at_risk)) for ratio in eprocess.ODDS_RATIOS
    ]
    assert at_s == 30.0
    assert value == pytest.approx(0.7 * np.mean(factors) + 0.3, rel=1e-12)
    assert later_s == 500.0
    assert later_value == pytest.approx(value, rel=1e-12)  # no control runs then: nothing is learnt


def test_the_first_moment_that_is_enough_may_be_a_block_s_or_a_failure_s() -> None:
    """0.3 of failures and the rest of sessions, each as they stood at that moment."""
    known_s = np.array([100.0, 200.0])
    failures = [(50.0, 10.0), (150.0, 200.0), (250.0, 400.0)]
    assert steps._first_s(known_s, np.array([1.0, 1.0]), failures) == 250.0
    assert steps._first_s(known_s, np.array([1.0, 40.0]), failures) == 200.0
    assert steps._first_s(known_s, np.array([40.0, 40.0]), failures) == 150.0
    assert steps._first_s(known_s, np.array([1.0, 1.0]), []) == np.inf
    assert steps._first_s(known_s, np.array([1.0, 1.0]), [(5.0, 400.0)]) == 5.0


def test_the_memory_gate_fails_at_the_third_length_that_a_worker_keeps() -> None:
    """The product's gate: two buffers may be a warm-up."""
    assert [steps.fails_on_memory(number) for number in range(1, 5)] == [False, False, True, True]
    assert steps._first_failing([1, 2, 1, 2, 1, 1, 2], [5, 5, 6, 6, 6, 7, 8]) == 5
    assert steps._first_failing([1, 2, 1, 2], [5, 5, 6, 6]) == 4


def test_times_are_what_the_fleet_s_assumptions_say() -> None:
    """Ten starts a minute of 5 minutes on average; a block is known when all of it is judged."""
    found = streams.scenario("OOM_5", num_streams=40, seed=1)
    times = timeline.drawn(found, seed=3)
    minutes = times.control.started_s[:, -1].mean() / 60
    lasts_s = (times.control.ended_s - times.control.started_s)[~found.control.failed]
    assert 2000 / minutes == pytest.approx(timeline.STARTS_A_MINUTE, rel=0.02)
    assert lasts_s.mean() == pytest.approx(timeline.MEAN_S, rel=0.03)
    judged_s = np.concatenate(
        [times.canary.judged_s.reshape(40, 40, 10), times.control.judged_s.reshape(40, 40, 40)], 2
    )
    assert (times.known_s()[:, :, None] >= judged_s).all()
    assert (times.known_s()[:, 0] == judged_s[:, 0].max(1)).all()
    waits_s = times.canary.judged_s - times.canary.started_s
    assert waits_s.max() <= timeline.HORIZON_S + 1e-6
    dead = found.canary.failed
    assert (times.canary.judged_s[dead] == times.canary.ended_s[dead]).all()


def test_a_rule_costs_the_sessions_that_began_before_it_acted() -> None:
    found = of_canary([3])
    times = timeline.ArmTimes(
        started_s=np.arange(10.0)[None] * 60,
        judged_s=np.arange(10.0)[None] * 60 + 120,
        ended_s=np.arange(10.0)[None] * 60 + 200,
    )
    cost = timeline.Cost.of(found, times, np.array([300.0]))
    assert (cost.minutes[0], cost.num_started[0], cost.num_harmed[0]) == (5.0, 6, 3)
    assert (cost.num_running[0], cost.num_running_harmed[0]) == (4, 1)
    row = score.Row.of(found, times, np.array([10]), np.array([np.inf]))
    assert (row.num_rolled_back, row.harmed, row.median_minutes) == (0, 3.0, None)


def result(*, num_false: int) -> dict[str, Any]:
    """A result of which one rule rolls back so many of 4,000 healthy canaries in one world."""
    rows = {
        name: {"num_rolled_back": 4000, "num_streams": 4000, "rolled_back_most": 1.0, "harmed": 8.0}
        for name in streams.HEADLINE
    }
    rows |= {
        name: {"num_rolled_back": 0, "num_streams": 4000, "rolled_back_most": 0.001, "harmed": 3.0}
        for name in streams.QUALIFYING
    }
    most = rates.upper_bound(num_false, 4000, alpha=0.025)
    rows["AA_7"] |= {"num_rolled_back": num_false, "rolled_back_most": most}
    checks = {"folded_at_once_different": 0, "from_records_different": 0}
    return {
        "scenarios": {
            name: {"rules": {score.OURS: row}, "checks": checks} for name, row in rows.items()
        },
        "horizon": {"AA_7": ([0, 0, 10], 1000)},
    }


@pytest.mark.parametrize(("num_false", "is_fine"), [(0, True), (40, True), (41, False)])
def test_a_rule_qualifies_by_its_worst_world(num_false: int, *, is_fine: bool) -> None:
    """1 % of 4,000 is 40, and its bound is below 1.5 %."""
    found = result(num_false=num_false)
    assert report.qualifies(found, score.OURS) is is_fine
    assert report.headline(found, score.OURS) == 8.0
    assert (not list(report.problems(found))) is is_fine


def test_one_in_a_hundred_is_too_few_streams_to_qualify_by() -> None:
    """1 % by the point, but a rule of 5 % shows one of a hundred as well."""
    found = result(num_false=0)
    row = found["scenarios"]["AA_7"]["rules"][score.OURS]
    row |= {"num_rolled_back": 1, "num_streams": 100}
    row["rolled_back_most"] = rates.upper_bound(1, 100, alpha=0.025)
    assert not report.qualifies(found, score.OURS)


def test_two_ways_to_decide_that_differ_are_a_problem_and_so_is_a_long_look() -> None:
    found = result(num_false=0)
    found["scenarios"]["AA_7"]["checks"] = {
        "folded_at_once_different": 2,
        "from_records_different": 1,
    }
    found["horizon"]["AA_7"] = ([0, 0, 11], 1000)
    told = "\n".join(report.problems(found))
    assert "2 streams are decided differently" in told
    assert "1 streams are decided differently" in told
    assert "11 of 1000" in told


def test_the_chart_names_every_rule_and_shows_which_qualify() -> None:
    points = [
        Point(name="a < b & c", false_percent=0.4, harmed=7.7, qualifies=True),
        *(
            Point(name=f"peer {number}", false_percent=100.0, harmed=8.0, qualifies=False)
            for number in range(3)
        ),
    ]
    root = ET.fromstring(chart.drawn(points, title="t", caption="c"))  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    texts = {text.text: text for text in root.iter(f"{space}text")}
    assert {"a < b & c (7.7)", "peer 0 (8.0)", "peer 1 (8.0)", "peer 2 (8.0)"} <= set(texts)
    heights = [float(texts[f"peer {number} (8.0)"].attrib["y"]) for number in range(3)]
    assert min(b - a for a, b in pairwise(heights)) >= 16
    fills = [circle.attrib["fill"] for circle in root.iter(f"{space}circle")]
    assert len(fills) == 4
    assert len(set(fills)) == 2
    assert log(chart._x(1.0) - chart._x(0.1)) == pytest.approx(log(chart._x(100) - chart._x(10)))
