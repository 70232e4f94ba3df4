"""Gates that compare arms: what holds, what rolls back, what promotes, and what says nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL
from controlplane.domain import judge
from controlplane.domain.blocks import (
    FAILED,
    FAILED_SESSIONS,
    SLOW,
    UNRATED,
    ArmCounts,
    Block,
    Kind,
    ranked,
)
from controlplane.domain.eprocess import QUANTILES, Table
from controlplane.domain.verdict import Case, GateResult, Verdict
from tests.domain import build
from tests.domain.build import FUSED, NOW, seconds, session

FRESHNESS: dict[str, object] = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
GATES: list[dict[str, object]] = [
    FRESHNESS,
    {"gate": "regression", "metric": "evidence_of_harm"},
    {"gate": "non_inferiority", "metric": "evidence_of_parity"},
    {"gate": "slow_rate", "metric": "slow_rate", "expected": "2%"},
    {"gate": "part_time", "metric": "part_times"},
    {"gate": "sample_ratio", "metric": "sessions_by_arm"},
]
STEP = {"name": "one", "workers": 1, "bake": "10s", "least_sessions": 2, "arm_share": "20%"}


Tables = Mapping[str, tuple[Table, ...]]


def block(
    index: int,
    slow: tuple[int, int] = (0, 0),
    *,
    canary: int = 10,
    control: int = 40,
    also: Tables | None = None,
) -> Block:
    """A window of `canary` and `control` sessions, of which `slow` were slow in each arm."""
    tables: Tables = {
        SLOW: (Table(slow[0], canary, slow[1], control),),
        UNRATED: (Table(0, canary, 0, control),),
        FAILED_SESSIONS: (Table(0, canary, 0, control),),
    }
    return Block(
        kind=Kind.SESSIONS,
        index=index,
        opened_at=NOW - timedelta(minutes=40 - index),
        closed_at=NOW - timedelta(minutes=36 - index),
        arms={ARM_CANARY: ArmCounts(num_started=canary, num_rated=canary, num_slow=slow[0])},
        tables={**tables, **(also or {})},
        sessions=(),
    )


def case(blocks: Sequence[Block], **changes: Any) -> Case:
    policy = build.policy(gates=GATES, steps=[{**STEP, "margin": changes.pop("margin", "3%")}])
    base = Case(
        policy=policy,
        step=policy.steps[0],
        variant=FUSED,
        exposed=frozenset({"worker-1"}),
        exposed_since=NOW - timedelta(hours=1),
        step_since=NOW - timedelta(minutes=5),
        evidence=build.evidence(),
        blocks=tuple(blocks),
    )
    return replace(base, **changes)


def said(gate: str, judged: Case) -> GateResult:
    return judge.judge(judged, now=NOW).result(gate)


def test_healthy_blocks_pass_and_say_what_would_roll_back() -> None:
    result = said("regression", case([block(n) for n in range(35)]))
    assert result.verdict is Verdict.PASSING
    assert result.value == pytest.approx(1.0)
    assert result.num_samples == 350
    assert "4 more slow sessions roll it back" in result.reason


def test_evidence_of_harm_holds_first_and_then_rolls_back() -> None:
    """Three of three against none of twelve is not enough; the fourth is."""
    held = said("regression", case([block(0), block(1, (2, 0)), block(2, (1, 0))]))
    assert held.verdict is Verdict.INCONCLUSIVE
    assert "nothing advances from 10 on" in held.reason
    assert "one more slow session rolls it back" not in held.reason
    harmed = [block(0), block(1, (4, 0)), block(2, (1, 0)), block(3)]
    back = said("regression", case(harmed))
    assert back.verdict is Verdict.FAILING
    assert back.value is not None
    assert back.value >= 100
    assert back.failed_at in {one.closed_at for one in harmed}


def test_what_has_been_shown_is_not_taken_back_by_later_luck() -> None:
    harmed = [block(0, (5, 0))]
    lucky = [block(n, (0, 8)) for n in range(1, 20)]
    assert said("regression", case(harmed)).verdict is Verdict.FAILING
    result = said("regression", case([*harmed, *lucky]))
    assert result.verdict is Verdict.FAILING
    assert result.failed_at == harmed[0].closed_at


def test_a_bad_week_that_hits_both_arms_alike_is_no_regression() -> None:
    """7 % slow was a healthy rate in the week after the upgrade."""
    blocks = [block(n, (1, 3)) for n in range(35)]
    assert said("regression", case(blocks)).verdict is Verdict.PASSING


def test_failures_of_exposed_processes_are_evidence_and_failures_elsewhere_are_not() -> None:
    def failures(index: int, table: Table) -> Block:
        return replace(
            block(index), kind=Kind.FAILURES, tables={FAILED: (table,)}, units=(f"i{index}",)
        )

    exposed = [failures(n, Table(1, 2, 0, 30)) for n in range(4)]
    elsewhere = [failures(n, Table(0, 2, 1, 30)) for n in range(4)]
    assert said("regression", case([block(0), *exposed])).verdict is Verdict.FAILING
    assert said("regression", case([block(0), *elsewhere])).verdict is Verdict.PASSING


def test_without_a_block_of_both_arms_nothing_is_known_and_after_long_it_is_unmeasured() -> None:
    early = case([], step_since=NOW - seconds(30))
    assert said("regression", early).verdict is Verdict.INCONCLUSIVE
    late = case([], step_since=NOW - timedelta(minutes=11))
    assert said("regression", late).verdict is Verdict.UNMEASURED
    lonely = case(
        [block(n, canary=10, control=0) for n in range(30)],
        step_since=NOW - timedelta(minutes=11),
    )
    assert said("regression", lonely).verdict is Verdict.UNMEASURED


def test_evidence_that_went_silent_is_unmeasured_but_harm_that_was_shown_stays() -> None:
    old = [replace(block(0), closed_at=NOW - timedelta(minutes=30))]
    since = NOW - timedelta(minutes=30)
    assert said("regression", case(old, step_since=since)).verdict is Verdict.UNMEASURED
    harmed = [replace(block(0, (5, 0)), closed_at=NOW - timedelta(minutes=30))]
    assert said("regression", case(harmed, step_since=since)).verdict is Verdict.FAILING


def test_parity_is_shown_by_enough_clean_blocks_and_smaller_margins_ask_for_more() -> None:
    """Zero events: 11 blocks of 10 and 40 for three points, 17 for two, 34 for one."""
    for margin, needed in (("3%", 11), ("2%", 17), ("1%", 34)):
        enough = said("non_inferiority", case([block(n) for n in range(needed)], margin=margin))
        assert enough.verdict is Verdict.PASSING, margin
        few = said("non_inferiority", case([block(n) for n in range(needed - 1)], margin=margin))
        assert few.verdict is Verdict.INCONCLUSIVE, margin
        assert "at least 10 more clean canary sessions" in few.reason


def test_every_guardrail_has_to_be_shown() -> None:
    dying = {FAILED_SESSIONS: (Table(1, 10, 0, 40),)}
    blocks = [block(n, also=dying) if n % 4 == 0 else block(n) for n in range(20)]
    result = said("non_inferiority", case(blocks))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "failed" in result.reason


def test_no_alarm_is_no_parity() -> None:
    """Without blocks nothing is wrong, and nothing is shown."""
    assert said("non_inferiority", case([])).verdict is Verdict.INCONCLUSIVE


def test_each_further_attempt_has_to_show_twice_as_much() -> None:
    blocks = [block(n) for n in range(12)]
    assert said("non_inferiority", case(blocks)).limit == 20
    again = said("non_inferiority", case(blocks, attempt=3))
    assert again.limit == 80
    assert again.verdict is Verdict.INCONCLUSIVE


def test_the_slow_rate_holds_whatever_the_controls_do() -> None:
    """Both arms bad: no regression, and yet no time to expose more."""
    blocks = [block(n, (2, 8)) for n in range(10)]
    assert said("regression", case(blocks)).verdict is Verdict.PASSING
    held = said("slow_rate", case(blocks))
    assert held.verdict is Verdict.INCONCLUSIVE
    assert "20 of 100 canary sessions slow, 2% expected" in held.reason
    assert said("slow_rate", case([block(n) for n in range(10)])).verdict is Verdict.PASSING


def test_a_slow_rate_that_nobody_stated_is_the_baselines_on_record_or_unmeasured() -> None:
    gates = [FRESHNESS, {"gate": "slow_rate", "metric": "slow_rate"}]
    policy = build.policy(gates=gates)
    judged = case([block(n) for n in range(10)], policy=policy, step=policy.steps[0])
    assert said("slow_rate", judged).verdict is Verdict.UNMEASURED
    known = replace(judged, qualified_slow_rate=0.007)
    assert said("slow_rate", known).verdict is Verdict.PASSING
    assert said("slow_rate", replace(judged, qualified_slow_rate=0.0)).value is not None


def test_the_part_that_takes_longer_is_named() -> None:
    def with_parts(index: int, slowest: tuple[int, int]) -> Block:
        healthy = Table(5, 10, 20, 40)
        tables: dict[str, tuple[Table, ...]] = {}
        for quantile in QUANTILES:
            num = int(quantile * 50)
            worse = Table(min(num, 10), 10, max(0, num - 10), 40)
            is_worse = slowest == (1, 0)
            tables[ranked("reduce", quantile)] = (worse if is_worse else healthy,)
            tables[ranked("decoder", quantile)] = (healthy,)
        return block(index, also=tables)

    slower = said("part_time", case([with_parts(n, (1, 0)) for n in range(5)]))
    assert slower.verdict is Verdict.INCONCLUSIVE
    assert slower.reason.startswith("reduce takes longer in the canary")
    even = said("part_time", case([with_parts(n, (0, 0)) for n in range(5)]))
    assert even.verdict is Verdict.PASSING
    assert said("part_time", case([block(0)])).verdict is Verdict.UNMEASURED


def _drawn(num_canary: int, num_control: int) -> Any:
    arms = [ARM_CANARY] * num_canary + [ARM_CONTROL] * num_control
    return build.evidence(
        sessions=tuple(session(f"s{n}", arm=arm, is_drawn=True) for n, arm in enumerate(arms))
    )


def test_arms_in_other_shares_than_drawn_hold() -> None:
    """A death that leaves no record costs every other gate its evidence."""
    as_drawn = said("sample_ratio", case([block(0)], evidence=_drawn(20, 80)))
    assert as_drawn.verdict is Verdict.PASSING
    missing = said("sample_ratio", case([block(0)], evidence=_drawn(2, 120)))
    assert missing.verdict is Verdict.INCONCLUSIVE
    assert "2 of 122 sessions in the canary arm, 20% drawn" in missing.reason


@pytest.mark.parametrize("is_canary", [True, False])
def test_arms_that_are_rated_unlike_hold_whichever_it_is(is_canary: bool) -> None:  # noqa: FBT001
    table = Table(6, 10, 0, 40) if is_canary else Table(0, 10, 40, 40)
    blocks = [block(n, also={UNRATED: (table,)}) for n in range(6)]
    held = said("sample_ratio", case(blocks, evidence=_drawn(20, 80)))
    assert held.verdict is Verdict.INCONCLUSIVE


def test_a_soak_in_which_all_was_well_promotes_no_live_step() -> None:
    """And its blocks are none that compare, so that the step knows that it is blind."""

    def synthetic(index: int) -> Block:
        whole = block(index)
        return replace(
            whole,
            tables={name: (Table(0, 0, 0, 0), *of) for name, of in whole.tables.items()},
        )

    soaked = case([synthetic(n) for n in range(35)], step_since=NOW - timedelta(minutes=11))
    assert said("non_inferiority", soaked).verdict is Verdict.INCONCLUSIVE
    assert said("regression", soaked).verdict is Verdict.UNMEASURED
    assert said("slow_rate", soaked).num_samples == 0


def test_a_step_without_controls_among_others_is_asked_no_comparison() -> None:
    steps = [
        {**STEP, "name": "soak", "traffic": "synthetic", "arm_share": "100%"},
        {**STEP, "margin": "3%"},
    ]
    policy = build.policy(gates=GATES, steps=steps)
    soak = case([], policy=policy, step=policy.steps[0], step_since=NOW - timedelta(hours=9))
    asked = {result.gate for result in judge.judge(soak, now=NOW).results}
    assert asked == {"hard_stops", "freshness", "sample"}
    harmed = replace(soak, blocks=(block(0, (5, 0)),))
    assert said("regression", harmed).verdict is Verdict.FAILING, "what was shown stays shown"
    live = replace(soak, step=policy.steps[1])
    assert said("regression", live).verdict is Verdict.UNMEASURED


def test_an_e_value_of_nothing_promotes_nothing() -> None:
    gates = [FRESHNESS, {"gate": "non_inferiority", "metric": "evidence_of_parity", "at_least": 1}]
    policy = build.policy(gates=gates, steps=[{**STEP, "margin": "3%"}])
    judged = case([], policy=policy, step=policy.steps[0])
    assert said("non_inferiority", judged).verdict is Verdict.INCONCLUSIVE
