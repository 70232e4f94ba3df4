"""What a block counts: who is in which arm, what is bad, and what never enters.

That windows close once, in any order and without doubles, is shown in `test_evidence.py`.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome
from controlplane.domain import blocks
from controlplane.domain.blocks import (
    FAILED,
    FAILED_SESSIONS,
    SHIFT,
    SLOW,
    STEP_TIME,
    UNRATED,
    Block,
    Design,
    Kind,
    ranked,
)
from controlplane.domain.eprocess import QUANTILES, Table
from controlplane.domain.evidence import PARTS, SessionEvidence
from tests.domain.build import NOW, seconds, session

SINCE = NOW - timedelta(minutes=10)
WIDTH = seconds(60)


def drawn(id_: str, arm: str = ARM_CANARY, **changes: Any) -> SessionEvidence:
    """A session of the first window whose arm was drawn."""
    changes = {"started_at": SINCE + seconds(5), **changes}
    return session(id_, arm=arm, is_drawn=True, **changes)


def on_worker(worker: str, start_s: float = 5, **changes: Any) -> SessionEvidence:
    """A session of a worker that is one arm as a whole: drawn once the worker is exposed."""
    is_exposed = worker == "exposed" or (worker == "late" and start_s >= 30)
    changes = {"is_drawn": is_exposed, **changes}
    return session(
        f"{worker}-{start_s}",
        worker=worker,
        incarnation=f"incarnation-{worker}",
        arm=ARM_CONTROL,
        started_at=SINCE + seconds(start_s),
        **changes,
    )


def designed(exposed: Collection[str] = (), *, is_by_worker: bool = False) -> Design:
    return Design(
        since=SINCE,
        width=WIDTH,
        horizon=seconds(120),
        exposed=exposed,
        is_by_worker=is_by_worker,
    )


EXPOSED = designed({"exposed", "late"}, is_by_worker=True)


def block_of(sessions: Sequence[SessionEvidence], design: Design | None = None) -> Block:
    (block,) = blocks.closed(sessions, design=design or designed(), known=(), now=NOW)
    return block


def failures(
    sessions: Sequence[SessionEvidence],
    *,
    known: Sequence[Block] = (),
    after_s: float = 0,
    design: Design = EXPOSED,
) -> Block | None:
    return blocks.failed(sessions, design=design, known=known, now=NOW + seconds(after_s))


# --- arms drawn for sessions


def test_sessions_are_compared_between_the_arms_drawn_for_them() -> None:
    block = block_of(
        [
            drawn("a", fps=24.0),
            drawn("b", fps=24.1),
            drawn("c", ARM_CONTROL, fps=23.0),
            drawn("d", ARM_CONTROL),
            drawn("e", ARM_CONTROL),
        ]
    )
    assert block.tables[SLOW][0] == Table(1, 2, 1, 3)
    assert block.kind is Kind.SESSIONS


def test_a_session_without_a_drawn_arm_is_in_no_table() -> None:
    """It ran on another worker, or before its worker knew of the canary: no fair comparison."""
    undrawn = session("x", arm=ARM_CONTROL, fps=20.0, started_at=SINCE + seconds(5))
    block = block_of([drawn("a"), undrawn])
    assert block.tables[SLOW][0] == Table(0, 1, 0, 0)
    assert "x" in block.sessions
    assert block_of([undrawn]).tables == {}


def test_live_and_synthetic_sessions_are_strata_of_their_own() -> None:
    """Synthetic viewers ask for what somebody chose; a different mix in an arm is no regression."""
    block = block_of(
        [
            drawn("a", fps=23.0),
            drawn("b", ARM_CONTROL),
            drawn("c", is_synthetic=True),
            drawn("d", ARM_CONTROL, is_synthetic=True, fps=23.0),
            drawn("e", ARM_CONTROL, is_synthetic=True),
        ]
    )
    assert block.tables[SLOW] == (Table(1, 1, 0, 1), Table(0, 1, 1, 2))
    assert all(len(tables) == 2 for tables in block.tables.values())


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.LOST])
def test_a_failed_session_stands_beside_the_slow_ones_and_is_none_of_them(outcome: Outcome) -> None:
    """Counted in both, one fault would be two pieces of evidence."""
    block = block_of([drawn("a", outcome=outcome, fps=3.0), drawn("b", ARM_CONTROL)])
    assert block.tables[SLOW][0] == Table(0, 1, 0, 1)
    assert block.tables[FAILED_SESSIONS][0] == Table(1, 1, 0, 1)
    assert block.tables[UNRATED][0] == Table(0, 1, 0, 1)


@pytest.mark.parametrize(
    "changes",
    [
        {"fps": None},
        {"fps": math.nan},
        {"fps": math.inf},
        {"fps": -math.inf},
        {"streamed_s": 0.99},
        {"streamed_s": math.nan},
        {"outcome": Outcome.VIEWER_LIMITED},
    ],
)
def test_a_session_without_a_rate_is_unrated_and_never_good(changes: dict[str, Any]) -> None:
    """Neither slow nor "not slow": its own table shows whether one arm has more of them."""
    block = block_of([drawn("a", **changes), drawn("b", ARM_CONTROL)])
    assert block.tables[SLOW][0] == Table(0, 0, 0, 1)
    assert block.tables[UNRATED][0] == Table(1, 1, 0, 1)
    assert block.tables[FAILED_SESSIONS][0] == Table(0, 1, 0, 1)
    for quantile in QUANTILES:
        assert all(not t.is_comparison for t in block.tables[ranked(SHIFT, quantile)])


@pytest.mark.parametrize("fps", [0.0, -1.0, -1e300, 23.5, 24.0])
def test_a_rate_at_or_below_the_threshold_is_slow_however_odd(fps: float) -> None:
    block = block_of([drawn("a", fps=fps), drawn("b", ARM_CONTROL)])
    assert block.tables[SLOW][0] == Table(1, 1, 0, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ARM_CANARY, ARM_CONTROL]),
            st.one_of(st.none(), st.floats()),
            st.floats(),
            st.sampled_from(Outcome),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_every_drawn_session_is_slow_not_slow_unrated_or_failed_once(
    drawings: list[tuple[str, float | None, float, Outcome, bool]],
) -> None:
    sessions = [
        drawn(f"s{n}", arm, fps=fps, streamed_s=streamed, outcome=outcome, is_synthetic=synthetic)
        for n, (arm, fps, streamed, outcome, synthetic) in enumerate(drawings)
    ]
    if not sessions:
        return
    tables = block_of(sessions).tables
    for slow, unrated, failed in zip(
        tables[SLOW], tables[UNRATED], tables[FAILED_SESSIONS], strict=True
    ):
        assert slow.canary + unrated.canary_bad == unrated.canary == failed.canary
        assert slow.control + unrated.control_bad == unrated.control == failed.control
        assert slow.canary_bad + failed.canary_bad <= slow.canary
    assert sum(table.canary + table.control for table in tables[UNRATED]) == len(sessions)


# --- ranks


def shift(block: Block, quantile: float) -> Table:
    return block.tables[ranked(SHIFT, quantile)][0]


def test_failed_sessions_rank_below_every_rate() -> None:
    sessions = [
        drawn("dead", outcome=Outcome.FAILED, fps=99.0),
        *(drawn(f"a{n}", fps=25.0 + n) for n in range(2)),
        *(drawn(f"b{n}", ARM_CONTROL, fps=10.0 + n) for n in range(7)),
    ]
    assert shift(block_of(sessions), 0.1) == Table(1, 3, 0, 7)


def test_ranks_leave_out_what_was_not_measured() -> None:
    sessions = [
        drawn("a", fps=None),
        *(drawn(f"a{n}", fps=25.0 + n) for n in range(3)),
        *(drawn(f"b{n}", ARM_CONTROL, fps=30.0 + n) for n in range(7)),
    ]
    assert shift(block_of(sessions), 0.1) == Table(1, 3, 0, 7)
    assert shift(block_of(sessions), 0.5) == Table(3, 3, 2, 7)


def test_a_longer_time_is_worse() -> None:
    def timed(id_: str, arm: str, ms: float) -> SessionEvidence:
        return drawn(id_, arm, parts_ms={"diffusion": ms, "reduce": 10.0, "decoder": 5.0})

    sessions = [
        *(timed(f"a{n}", ARM_CANARY, 160.0 + n) for n in range(3)),
        *(timed(f"b{n}", ARM_CONTROL, 150.0 + n) for n in range(7)),
    ]
    tables = block_of(sessions).tables
    assert tables[ranked(STEP_TIME, 0.25)][0] == Table(2, 3, 0, 7)
    assert tables[ranked("diffusion", 0.25)][0] == Table(2, 3, 0, 7)
    # Alike in both arms: all tie, and nothing is learnt.
    assert tables[ranked("decoder", 0.25)][0] == Table(3, 3, 7, 7)
    assert not tables[ranked("encode", 0.25)][0].is_comparison


def test_every_part_of_a_step_has_its_ranks() -> None:
    tables = block_of([drawn("a"), drawn("b", ARM_CONTROL)]).tables
    for indicator in (SHIFT, STEP_TIME, *PARTS):
        for quantile in QUANTILES:
            assert ranked(indicator, quantile) in tables


# --- arms that are whole workers


def test_workers_are_compared_by_incarnation_with_one_outcome_a_window() -> None:
    """A burst of slow sessions on one worker is one event, not five."""
    block = block_of(
        [
            *(on_worker("exposed", start, fps=20.0) for start in range(5)),
            *(on_worker("plain-1", start) for start in range(3)),
            on_worker("plain-2", fps=23.0),
            on_worker("plain-2", 6),
        ],
        EXPOSED,
    )
    assert block.tables[SLOW][0] == Table(1, 1, 1, 2)
    assert block.tables[FAILED_SESSIONS][0] == Table(0, 1, 0, 2)


def test_a_worker_has_the_worst_of_its_sessions() -> None:
    block = block_of(
        [
            on_worker("exposed", 1, fps=25.0, parts_ms={"diffusion": 100.0}),
            on_worker("exposed", 2, fps=21.0, parts_ms={"diffusion": 90.0}),
            *(
                on_worker(f"plain-{n}", fps=22.0 + n, parts_ms={"diffusion": 91.0 + n})
                for n in range(9)
            ),
        ],
        EXPOSED,
    )
    assert shift(block, 0.1) == Table(1, 1, 0, 9)
    assert block.tables[ranked("diffusion", 0.1)][0] == Table(1, 1, 0, 9)


def test_what_ran_on_a_worker_before_it_was_exposed_is_in_neither_arm() -> None:
    """It is no control: its worker was chosen. And no canary: it never ran the variant."""
    block = block_of(
        [
            on_worker("late", 29, fps=20.0),
            on_worker("exposed", 5),
            on_worker("plain", 5),
        ],
        EXPOSED,
    )
    assert block.tables[SLOW][0] == Table(0, 1, 0, 1)
    after = block_of([on_worker("late", 30, fps=20.0), on_worker("plain", 5)], EXPOSED)
    assert after.tables[SLOW][0] == Table(1, 1, 0, 1)


def test_two_incarnations_of_a_worker_are_two_units() -> None:
    block = block_of(
        [
            on_worker("exposed", 5),
            session(
                "restarted",
                worker="exposed",
                incarnation="second",
                fps=20.0,
                started_at=SINCE + seconds(40),
                is_drawn=True,
            ),
            on_worker("plain", 5),
        ],
        EXPOSED,
    )
    assert block.tables[SLOW][0] == Table(1, 2, 0, 1)


# --- what never enters


def test_nothing_running_is_in_a_closed_block() -> None:
    """It would be taken for good while the slow and the doomed still run."""
    running = drawn("run", outcome=None, streamed_s=10.0, fps=20.0)
    over = SINCE + WIDTH
    assert not blocks.closed([drawn("a"), running], design=designed(), known=(), now=over)
    (block,) = blocks.closed(
        [drawn("a"), drawn("run", outcome=None, streamed_s=120.0, fps=20.0)],
        design=designed(),
        known=(),
        now=NOW,
    )
    assert block.tables[SLOW][0] == Table(1, 2, 0, 0)


def test_a_record_that_comes_late_for_its_block_changes_none() -> None:
    """Neither the block that is written nor another one: its window has passed."""
    first = block_of([drawn("a"), drawn("b", ARM_CONTROL)])
    late = drawn("late", fps=10.0)
    assert not blocks.closed(
        [drawn("a"), drawn("b", ARM_CONTROL), late], design=designed(), known=[first], now=NOW
    )


def test_a_running_session_with_an_impossible_time_never_counts_as_judged() -> None:
    """NaN is not beyond the horizon."""
    odd = drawn("odd", outcome=None, streamed_s=math.nan)
    assert not blocks.closed([odd], design=designed(), known=(), now=SINCE + WIDTH)


# --- failures


def failed_on(worker: str, start_s: float = 5, **changes: Any) -> SessionEvidence:
    return on_worker(worker, start_s, outcome=Outcome.FAILED, fps=None, **changes)


def counted(block: Block | None) -> Table:
    assert block is not None
    assert block.kind is Kind.FAILURES
    (table,) = block.tables[FAILED]
    return table


def test_failures_compare_exposed_processes_with_never_exposed_ones() -> None:
    block = failures([failed_on("exposed"), on_worker("plain-1"), on_worker("plain-2")])
    assert counted(block) == Table(1, 1, 0, 2)
    assert block is not None
    assert block.units == ("incarnation-exposed",)
    assert block.sessions == ("exposed-5",)
    assert counted(failures([failed_on("plain"), on_worker("exposed")])) == Table(0, 1, 1, 1)


def test_the_arm_drawn_for_one_session_is_no_matter_for_the_death_of_its_process() -> None:
    """A kernel that leaks kills whichever session comes next, control arms included."""
    dead = drawn("x", ARM_CONTROL, worker="exposed", outcome=Outcome.LOST)
    assert counted(failures([dead, on_worker("plain")])) == Table(1, 1, 0, 1)


def test_without_a_new_failure_no_block_is_written() -> None:
    assert failures([on_worker("exposed"), on_worker("plain")]) is None
    assert failures([]) is None


def test_a_burst_on_one_process_is_one_failure() -> None:
    burst = [failed_on("exposed", start) for start in range(5)]
    assert counted(failures([*burst, on_worker("plain")])) == Table(1, 1, 0, 1)


def test_a_burst_is_one_failure_also_when_it_becomes_known_bit_by_bit() -> None:
    plain = on_worker("plain")
    first = failures([failed_on("exposed", 1), plain])
    assert first is not None
    both = [failed_on("exposed", 1), failed_on("exposed", 2), plain]
    second = failures(both, known=[first], after_s=5)
    assert counted(second) == Table(0, 0, 0, 1)
    assert second is not None
    assert (second.index, second.units, second.sessions) == (1, (), ("exposed-2",))
    assert failures(both, known=[first, second], after_s=6) is None


def test_a_process_that_fails_again_after_a_window_counts_again() -> None:
    plain = on_worker("plain", updated_at=NOW + seconds(61))
    first = failures([failed_on("exposed", 1), plain])
    assert first is not None
    again = failures(
        [failed_on("exposed", 1), failed_on("exposed", 2), plain], known=[first], after_s=61
    )
    assert counted(again) == Table(1, 1, 0, 1)


def test_a_failure_is_counted_once_however_often_it_is_seen() -> None:
    seen = [failed_on("exposed"), on_worker("plain")]
    first = failures(seen)
    assert first is not None
    assert failures(seen, known=[first], after_s=600) is None


def test_a_process_that_fell_silent_is_not_at_risk() -> None:
    """Else a fleet that shrank would make every failure look rare."""
    silent = on_worker("plain-2", updated_at=NOW - seconds(61))
    block = failures([failed_on("exposed"), on_worker("plain-1"), silent])
    assert counted(block) == Table(1, 1, 0, 1)


def test_a_process_that_failed_was_at_risk_however_late_it_is_known() -> None:
    lost = failed_on("exposed", updated_at=NOW - seconds(500))
    assert counted(failures([lost, on_worker("plain")])) == Table(1, 1, 0, 1)


def test_a_process_never_exposed_that_died_before_is_out_of_both_arms_for_a_window() -> None:
    first = failures([failed_on("plain-1"), on_worker("plain-2"), on_worker("exposed")])
    assert counted(first) == Table(0, 1, 1, 2)
    assert first is not None
    second = failures(
        [failed_on("plain-1"), on_worker("plain-2"), failed_on("exposed", 6)],
        known=[first],
        after_s=5,
    )
    assert counted(second) == Table(1, 1, 0, 1)


def test_a_process_is_in_one_arm_only() -> None:
    """What runs on both sides of its exposure is exposed."""
    block = failures([on_worker("late", 1), failed_on("late", 31), on_worker("plain")])
    assert counted(block) == Table(1, 1, 0, 1)


def test_a_process_that_died_before_it_was_exposed_is_in_neither_arm() -> None:
    block = failures([failed_on("late", 29), on_worker("exposed"), on_worker("plain")])
    assert counted(block) == Table(0, 1, 0, 1)


def test_blocks_of_sessions_do_not_count_as_blocks_of_failures() -> None:
    known = [block_of([failed_on("exposed"), on_worker("plain")], EXPOSED)]
    block = failures([failed_on("exposed"), on_worker("plain")], known=known)
    assert counted(block) == Table(1, 1, 0, 1)
    assert block is not None
    assert block.index == 0


def test_blocks_of_failures_do_not_close_windows_of_sessions() -> None:
    known = failures([failed_on("exposed"), on_worker("plain")])
    assert known is not None
    found = blocks.closed([on_worker("plain")], design=EXPOSED, known=[known], now=NOW)
    assert [block.index for block in found] == [0]


def test_what_failed_before_it_was_exposed_is_nobodys_failure() -> None:
    """The process lives on and is exposed later: the variant had no part in it."""
    block = failures([failed_on("late", 10), on_worker("late", 40), on_worker("plain")])
    assert counted(block) == Table(0, 1, 0, 1)


def test_a_drawn_session_was_exposed_whatever_else_is_known_of_its_worker() -> None:
    dead = drawn("x", worker="unheard-of", outcome=Outcome.FAILED)
    assert counted(failures([dead, on_worker("plain")])) == Table(1, 1, 0, 1)


def test_a_window_in_which_the_share_changed_compares_nothing() -> None:
    """Its later sessions are the canary's more often, and began at another time of day."""
    sessions = [drawn("a"), drawn("b", ARM_CONTROL)]
    for changed_s, is_compared in ((0, True), (30, False), (60, True)):
        design = replace(designed(), share_changed_at=SINCE + seconds(changed_s))
        block = block_of(sessions, design)
        assert bool(block.tables) is is_compared, changed_s
        assert block.sessions == ("a", "b")


# --- what the variant had no part in, and what never ends


def test_sessions_of_an_exposed_worker_while_its_canary_is_held_are_in_neither_arm() -> None:
    """They ran the baseline: compared with itself it would show that nothing is wrong."""
    held = [on_worker("exposed", start, is_drawn=False, fps=24.9) for start in (5, 15, 25)]
    assert block_of([*held, on_worker("plain")], EXPOSED).tables[SLOW][0] == Table(0, 0, 0, 1)
    block = failures([failed_on("exposed", 5, is_drawn=False), on_worker("plain")])
    assert counted(block) == Table(0, 0, 0, 1)


def test_a_session_that_is_not_compared_holds_no_block_open() -> None:
    """A stray viewer elsewhere, who blocks the socket for ever, must not hide a bad variant."""
    stray = on_worker("plain", outcome=None, fps=None, streamed_s=3.0)
    block = block_of([drawn("a", fps=20.0), drawn("b", ARM_CONTROL), stray])
    assert block.tables[SLOW][0] == Table(1, 1, 0, 1)


def test_a_session_that_never_ends_is_unrated_once_its_block_is_overdue() -> None:
    hangs = drawn("hangs", outcome=None, fps=None, streamed_s=0.5)
    others = [drawn("a", fps=20.0), drawn("b", ARM_CONTROL)]
    over_at = SINCE + WIDTH + 3 * seconds(120)
    early = blocks.closed([hangs, *others], design=designed(), known=(), now=over_at - seconds(1))
    assert not early
    (block,) = blocks.closed([hangs, *others], design=designed(), known=(), now=over_at)
    assert block.tables[SLOW][0] == Table(1, 1, 0, 1)
    assert block.tables[UNRATED][0] == Table(1, 2, 0, 1)


def test_a_session_that_ran_something_else_than_was_drawn_vouches_for_nothing() -> None:
    block = block_of([drawn("a", is_non_compliant=True), drawn("b", ARM_CONTROL)])
    assert block.tables[SLOW][0] == Table(0, 0, 0, 1)
    assert block.tables[UNRATED][0] == Table(1, 1, 0, 1)
