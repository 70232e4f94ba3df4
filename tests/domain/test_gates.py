"""What each gate says of evidence: missing, stale or non-finite telemetry never passes."""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import ARM_CONTROL, Outcome, Reason
from controlplane.domain import judge, memory_gate
from controlplane.domain.evidence import Evidence, QualityEvidence
from controlplane.domain.policy import HardStop, Traffic
from controlplane.domain.verdict import Case, GateResult, Verdict
from tests.domain import build
from tests.domain.build import FUSED, NOW, PLAIN, memory, seconds, segment, session, trip

MIB = 2**20


def case(evidence: Evidence | None = None, *, exposed: str = "worker-1", **changes: object) -> Case:
    """The first step of a policy, an hour into its exposure."""
    policy = build.policy(**changes)
    return Case(
        policy=policy,
        step=policy.steps[0],
        variant=FUSED,
        exposed=frozenset(exposed.split()),
        exposed_since=NOW - timedelta(hours=1),
        step_since=NOW - timedelta(hours=1),
        evidence=evidence if evidence is not None else build.evidence(),
    )


def said(gate: str, judged: Case) -> GateResult:
    return judge.judge(judged, now=NOW).result(gate)


def test_healthy_evidence_passes_every_gate() -> None:
    judgement = judge.judge(case(), now=NOW)
    assert {result.gate: result.verdict for result in judgement.results} == dict.fromkeys(
        ["hard_stops", "freshness", "failures", "floor", "memory", "sample"], Verdict.PASSING
    )
    assert judgement.verdict is Verdict.PASSING
    assert judgement.first_failing() is None


def test_gates_that_are_not_asked_are_not_answered() -> None:
    freshness = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
    judgement = judge.judge(case(gates=[freshness]), now=NOW)
    assert [result.gate for result in judgement.results] == ["hard_stops", "freshness", "sample"]


NOTHING = Evidence(sessions=(), memories=(), trips=(), newest_record_at={})


def test_no_evidence_at_all_is_unmeasured_not_passing() -> None:
    judgement = judge.judge(case(NOTHING), now=NOW)
    assert judgement.verdict is Verdict.UNMEASURED
    for gate in ("freshness", "failures", "floor", "memory"):
        assert judgement.result(gate).verdict is Verdict.UNMEASURED
        assert judgement.result(gate).value is None


@pytest.mark.parametrize(
    ("age_s", "verdict"),
    [(0, "passing"), (15, "passing"), (15.001, "unmeasured"), (-16, "unmeasured")],
)
def test_freshness_holds_up_to_its_limit_and_never_for_the_future(
    age_s: float, verdict: str
) -> None:
    evidence = build.evidence(newest_record_at={"worker-1": NOW - seconds(age_s)})
    assert said("freshness", case(evidence)).verdict == verdict


def test_one_silent_worker_is_enough_to_be_unmeasured() -> None:
    result = said("freshness", case(exposed="worker-1 worker-2"))
    assert result.verdict is Verdict.UNMEASURED
    assert "worker-2" in result.reason


def test_freshness_without_an_exposed_worker_is_unmeasured() -> None:
    assert said("freshness", case(exposed="")).verdict is Verdict.UNMEASURED


@pytest.mark.parametrize(
    ("fps", "verdict"),
    [
        (24.0, "passing"),
        (math.nextafter(24.0, 0), "failing"),
        (0.0, "failing"),
        (None, "unmeasured"),
        (math.nan, "unmeasured"),
        (math.inf, "unmeasured"),
    ],
)
def test_the_floor_is_met_at_exactly_its_value_and_by_no_missing_one(
    fps: float | None, verdict: str
) -> None:
    assert said("floor", case(build.evidence(sessions=(session(fps=fps),)))).verdict == verdict


def test_one_slow_session_among_many_fails_the_floor() -> None:
    sessions = [session(f"session-{n}") for n in range(50)]
    slow = session("slow", fps=23.99, updated_at=NOW - seconds(9))
    result = said("floor", case(build.evidence(sessions=(*sessions, slow))))
    assert result.verdict is Verdict.FAILING
    assert (result.value, result.failed_at) == (23.99, NOW - seconds(9))


@pytest.mark.parametrize(
    "changes",
    [
        {"streamed_s": 0.99},
        {"streamed_s": math.nan},
        {"streamed_s": math.inf},
        {"outcome": Outcome.VIEWER_LIMITED},
        {"outcome": None, "streamed_s": 29.9},
        {"arm": ARM_CONTROL},
        {"is_synthetic": True},
        {"is_non_compliant": True},
    ],
)
def test_a_session_that_says_nothing_of_the_variant_neither_passes_nor_fails(
    changes: dict[str, Any],
) -> None:
    """Neither the floor nor the sample may count it, slow or fast."""
    for fps in (10.0, 25.0):
        judged = case(build.evidence(sessions=(session(fps=fps, **changes),)))
        assert said("floor", judged).verdict is Verdict.UNMEASURED
        assert said("sample", judged).value == 0


def test_a_healthy_segment_of_a_non_compliant_session_is_no_pass_but_a_slow_one_fails() -> None:
    for fps, verdict in ((25.0, Verdict.UNMEASURED), (23.0, Verdict.FAILING)):
        mixed = session(is_non_compliant=True, segments=(segment(fps=fps),))
        assert said("floor", case(build.evidence(sessions=(mixed,)))).verdict is verdict


def test_a_running_session_is_judged_at_the_horizon() -> None:
    """Blocks close while people still talk, in both arms alike."""
    running = session(outcome=None, streamed_s=30.0, fps=23.0)
    assert said("floor", case(build.evidence(sessions=(running,)))).verdict is Verdict.FAILING


def test_a_synthetic_step_judges_synthetic_sessions_only() -> None:
    steps = [
        {"name": "soak", "workers": 1, "bake": "10s", "least_sessions": 1, "traffic": "synthetic"}
    ]
    sessions = (session("live", fps=10.0), session("tested", is_synthetic=True))
    judged = case(build.evidence(sessions=sessions), steps=steps)
    assert judged.step.traffic is Traffic.SYNTHETIC
    assert said("floor", judged).num_samples == 1
    assert said("floor", judged).verdict is Verdict.PASSING


def test_a_mixed_session_is_judged_on_its_time_under_the_variant() -> None:
    slow_elsewhere = session(fps=23.0, segments=(segment(FUSED), segment(PLAIN, fps=20.0)))
    slow_here = session(fps=24.4, segments=(segment(FUSED, fps=23.0), segment(PLAIN, fps=30.0)))
    judged = case(build.evidence(sessions=(slow_elsewhere,)))
    assert said("floor", judged).verdict is Verdict.PASSING
    judged = case(build.evidence(sessions=(slow_here,)))
    assert said("floor", judged).verdict is Verdict.FAILING


def test_a_slow_segment_of_a_viewer_limited_session_fails_nothing() -> None:
    limited = session(outcome=Outcome.VIEWER_LIMITED, segments=(segment(FUSED, fps=9.0),))
    judged = case(build.evidence(sessions=(limited,)))
    assert said("floor", judged).verdict is Verdict.UNMEASURED


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_failed_session_counts_however_short_it_was(outcome: Outcome) -> None:
    """The August deaths came before the first second."""
    died = session(outcome=outcome, streamed_s=0.0, fps=None)
    result = said("failures", case(build.evidence(sessions=(session("fine"), died))))
    assert result.verdict is Verdict.FAILING
    assert (result.value, result.failed_at) == (1, died.updated_at)


def test_failures_fail_only_above_their_bound_and_from_the_one_that_broke_it() -> None:
    failed = [
        session(f"f{n}", outcome=Outcome.FAILED, updated_at=NOW - seconds(n)) for n in (1, 2, 3)
    ]
    evidence = build.evidence(sessions=tuple(failed))
    for at_most, verdict in ((3, Verdict.PASSING), (2, Verdict.FAILING)):
        asked = [
            {"gate": "failures", "metric": "failed_sessions", "at_most": at_most},
            {"gate": "freshness", "metric": "record_age", "at_most": "15s"},
        ]
        assert said("failures", case(evidence, gates=asked)).verdict is verdict
    assert said("failures", case(evidence, gates=asked)).failed_at == NOW - seconds(1)


def test_a_failure_of_the_control_arm_is_not_the_variants() -> None:
    sessions = (session("fine"), session("c", arm=ARM_CONTROL, outcome=Outcome.FAILED))
    judged = case(build.evidence(sessions=sessions))
    assert said("failures", judged).verdict is Verdict.PASSING


# Lengths and what is kept for each; sessions of the canary meet all of them.
@pytest.mark.parametrize(
    ("kept_mib", "verdict"),
    [
        ([0, 0, 0], "passing"),
        ([0, 0], "inconclusive"),
        ([50, 0, 0], "passing"),
        ([1, 1, 1], "passing"),
        ([100, 100], "inconclusive"),
        ([0, 100, 100], "inconclusive"),
        ([100, 100, 100], "failing"),
        ([10, 20, 30], "failing"),
        ([0] * 50 + [2, 2, 2, 2], "failing"),
    ],
)
def test_memory_fails_on_growth_and_passes_only_over_enough_lengths(
    kept_mib: list[int], verdict: str
) -> None:
    """One buffer is no growth; three are; and lengths that left nothing do not hide those that did.

    Growth is (sum - smallest) / (number kept - 1): 1.0 MiB for three buffers of one, which is at
    the limit and so within it.
    """
    lengths = {100 + n: kept * MIB for n, kept in enumerate(kept_mib)}
    evidence = build.evidence(
        sessions=tuple(session(f"s{n}", first_forward_length=n) for n in lengths),
        memories=(memory(lengths=lengths),),
    )
    assert said("memory", case(evidence)).verdict == verdict


def test_a_variant_that_keeps_nothing_passes_without_reporting_any_length() -> None:
    """The corrected kernel reports no buffer; the lengths it met are those of its sessions."""
    sessions = tuple(session(f"s{n}", first_forward_length=n) for n in (100, 200, 300))
    evidence = build.evidence(sessions=sessions, memories=(memory(lengths={}),))
    assert said("memory", case(evidence)).verdict is Verdict.PASSING


def test_lengths_of_the_control_arm_are_no_input_diversity() -> None:
    sessions = tuple(
        session(f"s{n}", first_forward_length=n, arm=ARM_CONTROL) for n in (100, 200, 300)
    )
    assert said("memory", case(build.evidence(sessions=sessions))).verdict is Verdict.INCONCLUSIVE


def test_one_fixed_length_never_passes_memory_however_many_sessions() -> None:
    """The benchmark used one fixed prompt, so it never showed."""
    sessions = tuple(session(f"s{n}", first_forward_length=300) for n in range(100))
    evidence = build.evidence(sessions=sessions, memories=(memory(lengths={300: 0}),))
    assert said("memory", case(evidence)).verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("resident", "limit", "verdict"),
    [(900, 1000, "passing"), (901, 1000, "failing"), (10**12, None, "unmeasured")],
)
def test_memory_fails_above_its_share_of_the_limit(
    resident: int, limit: int | None, verdict: str
) -> None:
    evidence = build.evidence(memories=(memory(resident_bytes=resident, limit_bytes=limit),))
    result = said("memory", case(evidence))
    assert result.verdict == verdict
    assert ("no memory limit" in result.reason) is (limit is None)


@pytest.mark.parametrize(
    "memories",
    [
        (),
        (memory(received_at=NOW - seconds(16)),),
        (memory(received_at=NOW - timedelta(hours=2)),),
        (memory("worker-2"),),
    ],
)
def test_memory_without_a_fresh_record_of_each_exposed_worker_is_unmeasured(
    memories: tuple[Any, ...],
) -> None:
    assert said("memory", case(build.evidence(memories=memories))).verdict is Verdict.UNMEASURED


def test_a_worker_over_its_bounds_fails_even_if_another_is_silent() -> None:
    evidence = build.evidence(memories=(memory(resident_bytes=990),))
    result = said("memory", case(evidence, exposed="worker-1 worker-2"))
    assert result.verdict is Verdict.FAILING


@pytest.mark.parametrize("reason", sorted(Reason))
def test_a_trip_on_an_exposed_worker_is_a_hard_stop_unless_it_says_nothing(reason: Reason) -> None:
    harmless = {Reason.LEASE_LAPSED, Reason.BREAK_GLASS, Reason.DRAINED}
    result = said("hard_stops", case(build.evidence(trips=(trip(reason=reason),))))
    assert result.verdict is (Verdict.PASSING if reason in harmless else Verdict.FAILING)


@pytest.mark.parametrize("reason", sorted(Reason))
@pytest.mark.parametrize("stop", sorted(set(HardStop) - {HardStop.BREAKER_TRIP}))
def test_a_policy_with_one_hard_stop_rolls_back_at_that_one_only(
    stop: HardStop, reason: Reason
) -> None:
    judged = case(build.evidence(trips=(trip(reason=reason),)), hard_stops=[stop.value])
    failing = said("hard_stops", judged).verdict is Verdict.FAILING
    assert failing is (reason.value == stop.value)


@pytest.mark.parametrize("changes", [{"worker": "worker-2"}, {"is_on_variant": False}])
def test_a_trip_elsewhere_is_no_hard_stop(changes: dict[str, Any]) -> None:
    judged = case(build.evidence(trips=(trip(**changes),)))
    assert said("hard_stops", judged).verdict is Verdict.PASSING


def test_the_failure_that_came_first_is_the_one_told() -> None:
    sessions = (session("slow", fps=20.0, updated_at=NOW - seconds(4)), session("fine"))
    evidence = build.evidence(sessions=sessions, trips=(trip(at=NOW - seconds(3)),))
    first = judge.judge(case(evidence), now=NOW).first_failing()
    assert first is not None
    assert first.gate == "floor"


def test_a_sample_counts_sessions_that_began_in_this_step() -> None:
    old = session("old", started_at=NOW - timedelta(hours=2))
    result = said("sample", case(build.evidence(sessions=(old, session("new")))))
    assert (result.value, result.verdict) == (1, Verdict.INCONCLUSIVE)


ODD = st.one_of(st.none(), st.floats(), st.sampled_from([math.nan, math.inf, 24.0]))
SESSIONS = st.builds(
    session,
    id=st.uuids().map(str),
    fps=ODD,
    streamed_s=st.floats(),
    outcome=st.sampled_from([None, *Outcome]),
    is_non_compliant=st.booleans(),
    is_synthetic=st.booleans(),
    first_forward_length=st.integers(0, 500),
    segments=st.lists(st.builds(segment, fps=ODD), max_size=2).map(tuple),
)


@given(st.lists(SESSIONS, max_size=4).map(tuple), st.integers(-100, 100))
def test_no_telemetry_raises_and_none_passes_without_two_rated_sessions(
    sessions: tuple[Any, ...], age_s: int
) -> None:
    evidence = build.evidence(
        sessions=sessions, newest_record_at={"worker-1": NOW - seconds(age_s)}
    )
    judgement = judge.judge(case(evidence), now=NOW)
    rated = [s for s in sessions if s.fps is not None and math.isfinite(s.fps)]
    if judgement.verdict is Verdict.PASSING:
        assert len(rated) >= 2
        assert abs(age_s) <= 15
        assert not any(s.has_failed and not s.is_synthetic for s in sessions)
    for result in judgement.results:
        assert (result.verdict is Verdict.FAILING) is (result.failed_at is not None)


def test_growth_of_one_buffer_is_none() -> None:
    assert memory_gate.growth_per_length(memory(lengths={})) == 0
    assert memory_gate.growth_per_length(memory(lengths={1: 10})) == 0
    assert memory_gate.growth_per_length(memory(lengths={1: 10, 2: 30, 3: 0})) == 30


COVERAGE = {
    "gate": "coverage",
    "metric": "first_forward_lengths",
    "from": 8,
    "to": 120,
    "buckets": 8,
    "at_least": 2,
}
FRESHNESS = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}


def covered(*lengths: int, **changes: Any) -> GateResult:
    """What the gate says of one session for each length."""
    return _covered(COVERAGE, *lengths, **changes)


def _covered(
    gate: dict[str, Any], *lengths: int, production: Sequence[int] = (), **changes: Any
) -> GateResult:
    sessions = [
        session(f"s{n}", first_forward_length=length, **changes) for n, length in enumerate(lengths)
    ]
    sessions += [
        session(f"c{n}", first_forward_length=length, arm=ARM_CONTROL, worker="worker-2")
        for n, length in enumerate(production)
    ]
    evidence = build.evidence(sessions=tuple(sessions))
    return said("coverage", case(evidence, gates=[FRESHNESS, gate]))


def test_one_length_however_often_covers_one_bucket() -> None:
    """15 hours of tested sessions at one prompt length would have shown nothing in August."""
    result = covered(*[64] * 50)
    assert (result.verdict, result.value) == (Verdict.INCONCLUSIVE, 1)
    assert result.reason.startswith("1 of 8 buckets of first-forward lengths met, 2 asked for")


def test_one_length_is_no_evidence_even_where_one_bucket_is_enough() -> None:
    """The policy was satisfied with little; the inputs say nothing of any other length."""
    gate = {**COVERAGE, "at_least": 1}
    one = _covered(gate, *[64] * 50)
    assert one.verdict is Verdict.INCONCLUSIVE
    assert "all of one length, 64" in one.reason
    assert _covered(gate, 64, 65).verdict is Verdict.PASSING


def test_buckets_are_of_one_width_and_hold_both_ends_of_the_domain() -> None:
    """113 lengths in 8 buckets: the first is 8 to 22, the last begins at 106."""
    assert covered(8, 22).value == 1
    assert covered(22, 23).value == 2
    assert covered(105, 106, 120).value == 2
    assert covered(8, 23, 37, 51, 65, 79, 93, 107).value == 8
    assert covered(8, 23).verdict is Verdict.PASSING


def test_lengths_outside_the_domain_cover_nothing_and_are_told() -> None:
    result = covered(7, 121, 0, 10**9, 8)
    assert result.value == 1
    assert result.reason.endswith("; 4 sessions outside 8 to 120")


@pytest.mark.parametrize(
    "changes",
    [
        {"streamed_s": 0.5},
        {"outcome": Outcome.FAILED},
        {"outcome": Outcome.VIEWER_LIMITED},
        {"is_non_compliant": True},
        {"fps": math.nan},
        {"arm": ARM_CONTROL},
        {"is_synthetic": True},
    ],
)
def test_only_rated_sessions_of_the_canary_cover_anything(changes: dict[str, Any]) -> None:
    assert covered(8, 64, **changes).value == 0


def test_what_an_earlier_step_met_stays_met() -> None:
    met_before = NOW - timedelta(hours=5)
    assert covered(8, 64, started_at=met_before).verdict is Verdict.PASSING


def test_what_production_sends_and_the_canary_never_met_keeps_coverage_from_passing() -> None:
    """Half of the domain is enough only if production does not live in the other half."""
    gate = {**COVERAGE, "unmet_at_most": "5%"}
    met = (8, 23, 37, 51)
    assert _covered(gate, *met, production=[10] * 100).verdict is Verdict.PASSING
    elsewhere = _covered(gate, *met, production=[10] * 90 + [110] * 10)
    assert elsewhere.verdict is Verdict.INCONCLUSIVE
    assert "10.00% of 100 sessions of production in buckets never met" in elsewhere.reason
    assert _covered(gate, *met, production=[10] * 20).verdict is Verdict.INCONCLUSIVE, "too few"
    assert _covered(gate, *met, production=[10] * 90 + [500] * 10).verdict is Verdict.INCONCLUSIVE
    unknown = _covered(gate, *met)
    assert unknown.verdict is Verdict.INCONCLUSIVE
    assert "no session of production" in unknown.reason


STALL = {"gate": "stall", "metric": "longest_stall", "at_most": "5s"}


def test_one_long_stall_fails_however_good_the_average_is() -> None:
    """580 s at 25 fps and one stall of 20 s average 24.17, which meets the floor."""
    frozen = session(fps=580 * 25 / 600, streamed_s=600.0, longest_stall_ms=20_000.0)
    floor = {"gate": "floor", "metric": "session_fps", "at_least": 24.0}
    judged = case(build.evidence(sessions=(frozen,)), gates=[FRESHNESS, floor, STALL])
    assert said("floor", judged).verdict is Verdict.PASSING
    result = said("stall", judged)
    assert (result.verdict, result.value) == (Verdict.FAILING, 20_000.0)
    assert result.failed_at == frozen.updated_at


@pytest.mark.parametrize(
    ("stall_ms", "verdict"),
    [
        (0.0, Verdict.PASSING),
        (5000.0, Verdict.PASSING),
        (5000.1, Verdict.FAILING),
        (math.nan, Verdict.UNMEASURED),
        (math.inf, Verdict.UNMEASURED),
        (-1.0, Verdict.UNMEASURED),
    ],
)
def test_a_stall_is_judged_while_the_session_runs_and_no_number_is_no_pass(
    stall_ms: float, verdict: Verdict
) -> None:
    running = session(outcome=None, longest_stall_ms=stall_ms)
    judged = case(build.evidence(sessions=(running,)), gates=[FRESHNESS, STALL])
    assert said("stall", judged).verdict is verdict


def test_a_stall_of_a_slow_viewer_or_of_a_control_is_not_the_variants() -> None:
    sessions = (
        session("v", longest_stall_ms=1e6, outcome=Outcome.VIEWER_LIMITED),
        session("c", longest_stall_ms=1e6, arm=ARM_CONTROL),
    )
    judged = case(build.evidence(sessions=sessions), gates=[FRESHNESS, STALL])
    assert said("stall", judged).verdict is Verdict.UNMEASURED


@pytest.mark.parametrize(
    ("streamed_s", "fps", "verdict"),
    [
        (9.9, 20.0, Verdict.UNMEASURED),
        (10.0, 20.0, Verdict.FAILING),
        (10.0, 24.0, Verdict.UNMEASURED),
        (10.0, math.nan, Verdict.UNMEASURED),
    ],
)
def test_a_session_that_runs_below_the_floor_for_long_enough_counts_before_it_ends(
    streamed_s: float, fps: float, verdict: Verdict
) -> None:
    """Its viewer is being harmed now; what is fine so far is no pass yet."""
    floor = {"gate": "floor", "metric": "session_fps", "at_least": 24.0, "sustained": "10s"}
    running = session(outcome=None, streamed_s=streamed_s, fps=fps)
    judged = case(build.evidence(sessions=(running,)), gates=[FRESHNESS, floor])
    assert said("floor", judged).verdict is verdict


def test_memory_is_forecast_to_the_whole_domain() -> None:
    """The August kernel kept less than any bound for one length, and had 489 of them to come."""
    gate = {
        "gate": "memory",
        "metric": "retained_bytes_per_length",
        "at_most": "1MiB",
        "domain_lengths": 489,
    }
    kept = memory(
        resident_bytes=500 * MIB,
        limit_bytes=1000 * MIB,
        lengths=dict.fromkeys((100, 200, 300), MIB - 1),
    )
    judged = case(build.evidence(memories=(kept,)), gates=[FRESHNESS, gate])
    result = said("memory", judged)
    assert result.verdict is Verdict.FAILING
    assert "all 489 would need 986.0 MiB, 900.0 MiB allowed" in result.reason
    fits = {**gate, "domain_lengths": 400}
    assert said("memory", replace_policy(judged, [FRESHNESS, fits])).verdict is Verdict.PASSING


def replace_policy(judged: Case, gates: list[dict[str, Any]]) -> Case:
    return case(judged.evidence, gates=gates)


QUALITY = {"gate": "quality", "metric": "quality", "measure": "lpips", "at_least": 0.9}


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ((), Verdict.UNMEASURED),
        ((0.9,), Verdict.PASSING),
        ((0.95, 0.89), Verdict.FAILING),
        ((0.89, 0.95), Verdict.PASSING),
        ((0.95, math.nan), Verdict.UNMEASURED),
    ],
)
def test_quality_is_what_was_reported_last(values: tuple[float, ...], verdict: Verdict) -> None:
    reports = tuple(
        QualityEvidence(
            id=f"q{n}",
            measure="lpips",
            value=value,
            num_samples=10,
            received_at=NOW - seconds(60 - n),
        )
        for n, value in enumerate(values)
    )
    other = QualityEvidence(id="x", measure="psnr", value=0.0, num_samples=1, received_at=NOW)
    judged = case(build.evidence(qualities=(*reports, other)), gates=[FRESHNESS, QUALITY])
    assert said("quality", judged).verdict is verdict
