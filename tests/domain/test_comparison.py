"""What blocks add up to: each indicator from its own blocks, rollback and promotion apart."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from math import fsum, isclose
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome
from controlplane.domain import blocks, comparison, eprocess, noninferiority
from controlplane.domain.blocks import (
    FAILED,
    FAILED_SESSIONS,
    SHIFT,
    SLOW,
    UNRATED,
    Block,
    Design,
    Kind,
    ranked,
)
from controlplane.domain.comparison import Weights
from controlplane.domain.eprocess import QUANTILES, Table
from controlplane.domain.evidence import SessionEvidence
from tests.domain.build import NOW, seconds, session

CLEAN = Table(0, 10, 0, 40)
WORSE = Table(3, 10, 0, 40)
SINCE = NOW - timedelta(hours=2)
DESIGN = Design(
    since=SINCE, width=seconds(60), horizon=seconds(120), exposed=(), is_by_worker=False
)

any_tables = st.builds(
    lambda canary, control, bad, worse: Table(
        min(bad, canary), canary, min(worse, control), control
    ),
    *[st.integers(0, 12)] * 4,
)


def of_sessions(index: int = 0, **tables: Table | Sequence[Table]) -> Block:
    """A block of sessions: indicators by name, one table or one a stratum; the others are clean."""
    found = {name: (one,) if isinstance(one, Table) else tuple(one) for name, one in tables.items()}
    shift = found.pop(SHIFT, (CLEAN,))
    ranks = {ranked(SHIFT, quantile): shift for quantile in QUANTILES}
    clean = dict.fromkeys((SLOW, UNRATED, FAILED_SESSIONS), (CLEAN,))
    return Block(
        index=index,
        opened_at=SINCE,
        closed_at=NOW,
        arms={},
        tables={**clean, **ranks, **found},
        sessions=(),
    )


def of_failures(*tables: Table, index: int = 0) -> Block:
    return Block(
        kind=Kind.FAILURES,
        index=index,
        opened_at=SINCE,
        closed_at=NOW,
        arms={},
        tables={FAILED: tables},
        sessions=(),
    )


any_blocks = st.lists(
    st.one_of(
        st.builds(
            lambda slow, failed, shift: of_sessions(slow=slow, failed_sessions=failed, shift=shift),
            *[any_tables] * 3,
        ),
        any_tables.map(of_failures),
    ),
    max_size=8,
)


def test_no_block_is_no_evidence() -> None:
    found = comparison.regression([], Weights())
    assert (found.value, found.num_blocks) == (1.0, 0)
    assert set(found.by_indicator.values()) == {1.0}
    assert comparison.non_inferiority([], margin=0.01) == {SLOW: 1.0, FAILED_SESSIONS: 1.0}


def test_indicators_are_weighed_six_three_and_one() -> None:
    written = [
        of_sessions(slow=WORSE),
        of_failures(Table(2, 5, 0, 20)),
        of_sessions(shift=Table(4, 10, 1, 40)),
    ]
    found = comparison.regression(written, Weights())
    slow = eprocess.evidence([[WORSE], [CLEAN]])
    failed = eprocess.evidence([[Table(2, 5, 0, 20)]])
    shift = eprocess.evidence([[CLEAN], [Table(4, 10, 1, 40)]])
    assert found.by_indicator == pytest.approx({SLOW: slow, FAILED: failed, SHIFT: shift})
    assert found.value == pytest.approx(0.6 * slow + 0.3 * failed + 0.1 * shift)


@pytest.mark.parametrize(
    ("written", "attributed"),
    [
        (of_sessions(slow=WORSE), SLOW),
        (of_failures(WORSE), FAILED),
        (of_sessions(shift=WORSE), SHIFT),
    ],
)
def test_evidence_is_attributed_to_the_indicator_that_carries_most(
    written: Block, attributed: str
) -> None:
    assert comparison.regression([written], Weights()).attributed == attributed


def test_an_indicator_without_weight_takes_no_part() -> None:
    weights = Weights(slow=1.0, failed=0.0, shift=0.0)
    found = comparison.regression([of_failures(WORSE), of_sessions(shift=WORSE)], weights)
    assert found.by_indicator == {SLOW: pytest.approx(1.0)}
    assert found.value == pytest.approx(1.0)


def test_failures_weigh_once_in_a_rollback() -> None:
    """Sessions of the window failed as well; those are for promotion alone."""
    found = comparison.regression([of_sessions(failed_sessions=Table(9, 10, 0, 40))], Weights())
    assert found.value == pytest.approx(1.0)


def test_unrated_sessions_have_evidence_of_their_own() -> None:
    """An arm whose sessions end without a rate is shown, and rolls nothing back."""
    written = [of_sessions(unrated=Table(6, 10, 0, 40))]
    assert comparison.indicator_value(written, UNRATED) > 100
    assert comparison.regression(written, Weights()).value == pytest.approx(1.0)


def test_blocks_of_one_kind_do_not_age_the_other() -> None:
    """A failure must not use up the stake of the slow sessions' first block, nor the reverse."""
    session_blocks = [of_sessions(slow=WORSE), of_sessions(slow=Table(1, 10, 0, 40))]
    mixed = [of_failures(CLEAN), session_blocks[0], of_failures(CLEAN), session_blocks[1]]
    for indicator in (SLOW, FAILED, SHIFT):
        alone = comparison.indicator_value(session_blocks, indicator)
        assert comparison.indicator_value(mixed, indicator) == alone


def test_a_block_without_a_control_is_no_block_of_comparison() -> None:
    alone = Block(
        index=0,
        opened_at=SINCE,
        closed_at=NOW,
        arms={},
        tables={SLOW: (Table(5, 10, 0, 0),)},
        sessions=(),
    )
    found = comparison.regression([alone, of_sessions(slow=CLEAN)], Weights())
    assert found.num_blocks == 1
    assert found.value == pytest.approx(1.0)


@given(any_blocks)
def test_the_same_log_gives_the_same_evidence(written: list[Block]) -> None:
    """After a restart of the control plane, and for who checks the record."""
    first = comparison.regression(written, Weights())
    assert comparison.regression(list(written), Weights()) == first
    assert comparison.regression(iter(written), Weights()) == first


@given(any_blocks)
def test_the_trajectory_is_what_each_look_saw(written: list[Block]) -> None:
    found = comparison.regression(written, Weights())
    looks = [comparison.regression(written[: n + 1], Weights()).value for n in range(len(written))]
    assert list(found.trajectory) == looks
    assert found.value == (looks[-1] if looks else 1.0)


@given(any_blocks)
def test_the_whole_is_between_its_indicators(written: list[Block]) -> None:
    found = comparison.regression(written, Weights())
    values = found.by_indicator.values()
    assert min(values) * (1 - 1e-9) <= found.value <= max(values) * (1 + 1e-9)


# --- promotion


def test_promotion_asks_for_each_guardrail_on_its_own() -> None:
    written = [of_sessions(slow=Table(0, 10, 0, 40), failed_sessions=Table(2, 10, 0, 40))] * 11
    found = comparison.non_inferiority(written, margin=0.03)
    assert found[SLOW] >= 20
    assert found[FAILED_SESSIONS] < 1e-6
    assert set(found) == set(comparison.GUARDRAILS)


def test_promotion_rests_on_sessions_not_on_the_blocks_of_failures() -> None:
    """Those hold only windows in which something failed: a rate of them is no rate."""
    written = [of_sessions(slow=CLEAN)] * 5
    with_failures = [*written, of_failures(Table(5, 5, 0, 20))]
    assert comparison.non_inferiority(with_failures, margin=0.01) == comparison.non_inferiority(
        written, margin=0.01
    )


def test_a_later_step_asks_a_smaller_margin_of_the_same_blocks() -> None:
    written = [of_sessions(slow=CLEAN)] * 17
    found = [comparison.non_inferiority(written, margin=m)[SLOW] for m in (0.03, 0.02, 0.01)]
    assert all(wide > tight for wide, tight in pairwise(found))
    expected = noninferiority.evidence([CLEAN] * 17, margin=0.02)
    assert found[1] == pytest.approx(expected)
    assert found[1] >= 20 > found[2]


def test_a_canary_that_is_not_shown_to_be_worse_is_not_shown_to_be_as_good() -> None:
    """Two in a hundred slow against 0.7 survive any alarm for long; silence must not promote."""
    written = [of_sessions(slow=Table(int(n % 5 == 0), 10, int(n % 4 == 0), 40)) for n in range(40)]
    assert comparison.regression(written, Weights()).value < 10
    assert comparison.non_inferiority(written, margin=0.01)[SLOW] < 20


# --- for display


def test_totals_add_up_over_blocks_and_strata() -> None:
    written = [
        of_sessions(slow=(Table(1, 2, 3, 4), Table(0, 1, 1, 2))),
        of_sessions(slow=Table(2, 5, 0, 9)),
        of_failures(WORSE),
    ]
    assert comparison.totals(written, SLOW) == Table(3, 8, 4, 15)
    assert comparison.totals(written, FAILED) == WORSE
    assert comparison.totals([], SLOW) == Table(0, 0, 0, 0)


# --- from sessions to a decision


def minute(
    index: int, random: Random, *, slow: float, failing: float = 0.0, faster: float = 0.0
) -> list[SessionEvidence]:
    """Ten canary and forty control sessions of one window; the control is slow in 0.7 %."""

    def one(number: int, arm: str, rate: float, fails: float, lead: float) -> SessionEvidence:
        is_slow, has_failed = random.random() < rate, random.random() < fails
        return session(
            f"{index}-{arm}-{number}",
            arm=arm,
            is_drawn=True,
            started_at=SINCE + seconds(60 * index + number),
            outcome=Outcome.FAILED if has_failed else Outcome.COMPLETED,
            fps=23.0 + random.random() if is_slow else 24.4 + lead + random.random() / 5,
        )

    return [
        *(one(n, ARM_CANARY, slow, failing, faster) for n in range(10)),
        *(one(n, ARM_CONTROL, 0.007, 0.0, 0.0) for n in range(40)),
    ]


def judged(**canary: float) -> tuple[list[Block], comparison.Regression]:
    random = Random("one canary")
    sessions = [each for index in range(40) for each in minute(index, random, **canary)]
    written = list(blocks.closed(sessions, design=DESIGN, known=(), now=NOW))
    return written, comparison.regression(written, Weights())


def test_sessions_of_a_healthy_canary_lead_to_no_rollback() -> None:
    written, found = judged(slow=0.007)
    assert found.num_blocks == len(written) == 40
    assert max(found.trajectory) < 10
    assert comparison.non_inferiority(written, margin=0.03)[SLOW] >= 20


def test_sessions_of_a_slow_canary_lead_to_a_rollback_for_slowness() -> None:
    written, found = judged(slow=0.15)
    assert found.value >= 100
    assert found.attributed == SLOW
    assert comparison.non_inferiority(written, margin=0.03)[SLOW] < 1


def test_sessions_of_a_canary_slower_as_a_whole_lead_to_a_rollback_without_a_slow_one() -> None:
    _, found = judged(slow=0.0, faster=-0.15)
    assert found.by_indicator[SLOW] < 2
    assert found.attributed == SHIFT
    assert found.value >= 100


def test_sessions_that_die_do_not_make_the_others_look_faster() -> None:
    """A canary that kills a fifth of its sessions and is a little faster otherwise."""
    random = Random("dying")
    sessions = [
        each
        for index in range(40)
        for each in minute(index, random, slow=0.0, failing=0.2, faster=0.02)
    ]

    def written(of: list[SessionEvidence]) -> tuple[Block, ...]:
        return blocks.closed(of, design=DESIGN, known=(), now=NOW)

    survivors = [each for each in sessions if not each.has_failed]
    assert comparison.indicator_value(written(survivors), SHIFT) < 1
    assert comparison.indicator_value(written(sessions), SHIFT) >= 100
    promoting = comparison.non_inferiority(written(sessions), margin=0.03)
    assert promoting[FAILED_SESSIONS] < 1 < promoting[SLOW]


def test_healthy_synthetic_sessions_do_not_vouch_for_live_ones() -> None:
    """A product over strata is evidence against "worse in every one", which nobody asked."""
    slow = (Table(1, 10, 0, 40), Table(0, 10, 0, 40))
    both = [
        Block(
            kind=Kind.SESSIONS,
            index=index,
            opened_at=NOW,
            closed_at=NOW,
            arms={},
            tables={SLOW: slow, FAILED_SESSIONS: (Table(0, 10, 0, 40), Table(0, 10, 0, 40))},
            sessions=(),
        )
        for index in range(40)
    ]
    assert comparison.non_inferiority(both, margin=0.03)[SLOW] < 1
    soak = [
        replace(
            block,
            tables={name: (Table(0, 0, 0, 0), of[1]) for name, of in block.tables.items()},
        )
        for block in both
    ]
    assert comparison.non_inferiority(soak, margin=0.03, is_synthetic=True)[SLOW] >= 20
    assert comparison.non_inferiority(soak, margin=0.03)[SLOW] == 1


def test_evidence_of_ranks_is_the_mean_over_quantiles() -> None:
    canary: list[float | None] = [24.0 + step / 100 for step in range(10)]
    control: list[float | None] = [24.5 + step / 100 for step in range(40)]
    tables = {
        ranked(SHIFT, quantile): (eprocess.worst_ranked(canary, control, quantile=quantile),)
        for quantile in QUANTILES
    }
    block = replace(of_sessions(), tables=tables)
    by_quantile = [eprocess.evidence([of_one] * 2) for of_one in tables.values()]
    found = comparison.indicator_value([block, block], SHIFT)
    assert isclose(found, fsum(by_quantile) / 3)
    assert found > 100
