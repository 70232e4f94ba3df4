"""Blocks of evidence: written once when all of their sessions are judged, in any order."""

import math
from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL, Outcome
from controlplane.domain import blocks
from controlplane.domain.blocks import ArmCounts, Block, Design
from controlplane.domain.evidence import SessionEvidence
from tests.domain import build
from tests.domain.build import NOW, seconds, session

SINCE = NOW - timedelta(minutes=10)
WIDTH = seconds(60)
HORIZON = seconds(120)


def closed(
    sessions: Sequence[SessionEvidence], *, known: Sequence[Block] = (), now_s: float = 600
) -> tuple[Block, ...]:
    design = Design(since=SINCE, width=WIDTH, horizon=HORIZON, exposed=())
    return blocks.closed(sessions, design=design, known=known, now=SINCE + seconds(now_s))


def at(start_s: float, **changes: object) -> SessionEvidence:
    changes = {"is_drawn": True, **changes}
    return session(f"at-{start_s}", started_at=SINCE + seconds(start_s), **changes)


def test_a_session_belongs_to_the_window_in_which_it_started() -> None:
    found = closed([at(0), at(59.999), at(60), at(181)])
    assert [(block.index, len(block.sessions)) for block in found] == [(0, 2), (1, 1), (3, 1)]
    assert found[1].opened_at == SINCE + seconds(60)


def test_a_window_is_open_until_it_is_over() -> None:
    assert not closed([at(0)], now_s=59.999)
    assert len(closed([at(0)], now_s=60)) == 1


def test_a_window_is_open_while_one_of_its_sessions_is_not_judged() -> None:
    running = at(2, outcome=None, streamed_s=119.9)
    assert not closed([at(1), running], now_s=60)
    assert len(closed([at(1), at(2, outcome=None, streamed_s=120.0)], now_s=60)) == 1


def test_a_block_that_exists_is_never_written_again() -> None:
    """What was judged on it must not change under the judgement."""
    first = closed([at(0)])
    assert [block.index for block in closed([at(0), at(60)], known=first)] == [1]


def test_what_started_before_the_canary_is_in_no_block() -> None:
    assert not closed([at(-0.001)])


def test_each_arm_is_counted_by_the_shared_thresholds() -> None:
    (block,) = closed(
        [
            at(0, fps=24.0),
            at(1, fps=23.5),
            at(2, fps=24.1),
            at(3, fps=10.0, streamed_s=0.99),
            at(4, fps=None),
            at(5, fps=math.nan),
            at(6, fps=10.0, outcome=Outcome.VIEWER_LIMITED),
            at(7, fps=10.0, outcome=Outcome.FAILED),
            at(8, fps=None, outcome=Outcome.LOST, streamed_s=0.0),
            at(9, arm=ARM_CONTROL, fps=25.0),
        ]
    )
    assert block.arms == {
        ARM_CANARY: ArmCounts(
            num_started=9, num_rated=3, num_slow=2, num_very_slow=1, num_failed=2
        ),
        ARM_CONTROL: ArmCounts(num_started=1, num_rated=1),
    }


SESSIONS = st.lists(
    st.builds(
        session,
        id=st.integers(0, 10**6).map("s{}".format),
        started_at=st.integers(-60, 600).map(lambda s: SINCE + seconds(s)),
        arm=st.sampled_from([ARM_CANARY, ARM_CONTROL]),
        outcome=st.sampled_from([None, *Outcome]),
        fps=st.one_of(st.none(), st.floats()),
        streamed_s=st.floats(),
    ),
    max_size=12,
    unique_by=lambda s: s.id,
)


@given(SESSIONS, st.randoms(use_true_random=False))
def test_blocks_do_not_depend_on_the_order_of_sessions(
    sessions: list[SessionEvidence], random: object
) -> None:
    shuffled = list(sessions)
    random.shuffle(shuffled)  # type: ignore[attr-defined] # a random.Random in disguise
    assert closed(shuffled) == closed(sessions)


@given(SESSIONS, st.integers(0, 900), st.integers(0, 900))
def test_looking_twice_writes_what_looking_once_does(
    sessions: list[SessionEvidence], first_s: int, later_s: int
) -> None:
    early, late = sorted((first_s, later_s))
    first = closed(sessions, now_s=early)
    second = closed(sessions, known=first, now_s=late)
    once = closed(sessions, now_s=late)
    assert {b.index: (b.arms, b.sessions) for b in (*first, *second)} == {
        b.index: (b.arms, b.sessions) for b in once
    }
    assert len(first) + len(second) == len(once)


@given(SESSIONS)
def test_no_session_is_counted_twice_or_invented(sessions: list[SessionEvidence]) -> None:
    found = closed(sessions)
    written = [id_ for block in found for id_ in block.sessions]
    assert len(written) == len(set(written))
    assert set(written) <= {each.id for each in sessions}
    for block in found:
        assert sum(counts.num_started for counts in block.arms.values()) == len(block.sessions)
        for counts in block.arms.values():
            assert counts.num_very_slow <= counts.num_slow <= counts.num_rated
            assert counts.num_rated + counts.num_failed <= counts.num_started


def test_the_builder_of_evidence_is_healthy() -> None:
    """Other tests change one thing of it at a time."""
    assert all(each.counts_for_rate() for each in build.evidence().sessions)
