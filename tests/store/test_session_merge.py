"""Records of a session make the same row in any order, with any repeats and any windows missing."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract.records import SessionRecord
from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.store import session_row
from controlplane.store.session_row import LiveSession, Origin
from tests import build
from tests.clock import START

_ORIGIN = Origin(worker_id="w", incarnation="i", fleet_id="f", hardware="h", stack="s")
_OUTCOMES = st.sampled_from([Outcome.COMPLETED, Outcome.FAILED, Outcome.VIEWER_LIMITED])


@st.composite
def _lives(draw: st.DrawFn) -> list[SessionRecord]:
    """A session as its worker tells it: started, windows, and perhaps an end."""
    num_windows = draw(st.integers(0, 5))
    told: list[SessionRecord] = [build.started(seq=1)]
    for number in range(1, num_windows + 1):
        frames = 4 + 100 * number
        told.append(build.window(seq=1 + 2 * number, num_frames=frames, streamed_s=4.0 * number))
    if draw(st.booleans()):
        told.append(build.ended(seq=99, num_frames=999, outcome=draw(_OUTCOMES)))
    return told


@st.composite
def _deliveries(draw: st.DrawFn) -> tuple[list[SessionRecord], list[SessionRecord]]:
    """A session's life, and what arrives of it: the newest at least, the others as it comes."""
    life = draw(_lives())
    kept = [one for one in life[:-1] if draw(st.booleans())]
    repeated = draw(st.lists(st.sampled_from(life), max_size=4))
    return life, draw(st.permutations([*kept, *repeated, life[-1]]))


@given(delivery=_deliveries())
def test_merging_is_commutative(
    delivery: tuple[list[SessionRecord], list[SessionRecord]],
) -> None:
    """Loss, repeats and reordering happen on every bad network day and must change no verdict."""
    life, arrived = delivery
    assert _timeless(_merged(arrived)) == _timeless(_merged(life))


@given(delivery=_deliveries(), position=st.integers(0, 10))
def test_an_end_is_final_wherever_it_arrives(
    delivery: tuple[list[SessionRecord], list[SessionRecord]], position: int
) -> None:
    """Even a window with a higher number than the end, which no sound worker sends."""
    _, arrived = delivery
    end = build.ended(seq=50, num_frames=777)
    windows = [one for one in arrived if one.seq != 99]
    rogue = build.window(seq=60, num_frames=888)
    mixed = [*windows, rogue]
    mixed.insert(position, end)
    assert _merged(mixed).num_frames == 777


def test_the_first_end_stands() -> None:
    ended = _merged([build.ended(seq=3), build.ended(seq=9, outcome=Outcome.FAILED)])
    assert ended.outcome is Outcome.COMPLETED


def test_an_end_after_lost_is_kept_beside_it() -> None:
    """The server gave the session up; what its worker says later changes no judgement."""
    lost = session_row.lost(_merged([build.started()]), now=START)
    late = session_row.merged(lost, build.ended(), origin=_ORIGIN, now=START)
    assert (late.outcome, late.reason) == (Outcome.LOST, Reason.PROCESS_LOST)
    assert late.late_outcome is Outcome.COMPLETED
    assert late.num_frames == 0


def test_the_start_is_the_receipt_of_the_first_record_to_arrive() -> None:
    first = session_row.merged(None, build.window(seq=5), origin=_ORIGIN, now=START)
    later = START + timedelta(seconds=5)
    second = session_row.merged(first, build.started(seq=1), origin=_ORIGIN, now=later)
    assert (second.started_at, second.updated_at) == (START, later)


def test_over_one_step_in_a_hundred_is_not_compliant() -> None:
    one = _merged([build.window(num_steps=200, num_non_compliant_steps=2)])
    assert not one.is_non_compliant
    assert replace(one, num_non_compliant_steps=3).is_non_compliant


def _merged(records: list[SessionRecord]) -> LiveSession:
    row: LiveSession | None = None
    for record in records:
        row = session_row.merged(row, record, origin=_ORIGIN, now=START)
    assert row is not None
    return row


def _timeless(row: LiveSession) -> LiveSession:
    return replace(row, started_at=START, updated_at=START, ended_at=row.ended_at and START)
