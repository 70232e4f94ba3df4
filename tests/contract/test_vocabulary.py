"""The measures that worker, control plane and reports share."""

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract import vocabulary

NOT_NUMBERS = (math.nan, math.inf, -math.inf)


def test_a_session_at_exactly_the_threshold_is_slow_and_meets_the_floor() -> None:
    """Both come from the source: slow is 24 or less, the canary asks for 24.0 or more."""
    assert vocabulary.is_slow(24.0)
    assert vocabulary.meets_floor(24.0)


def test_the_next_numbers_beside_the_threshold_are_on_one_side_only() -> None:
    above, below = math.nextafter(24.0, 25), math.nextafter(24.0, 23)
    assert vocabulary.meets_floor(above)
    assert not vocabulary.is_slow(above)
    assert vocabulary.is_slow(below)
    assert not vocabulary.meets_floor(below)


def test_a_session_at_exactly_23_5_is_very_slow() -> None:
    assert vocabulary.is_very_slow(23.5)
    assert not vocabulary.is_very_slow(math.nextafter(23.5, 24))


def test_every_very_slow_session_is_slow() -> None:
    assert vocabulary.VERY_SLOW_FPS <= vocabulary.SLOW_FPS


@pytest.mark.parametrize("value", NOT_NUMBERS)
@pytest.mark.parametrize(
    "compare",
    [
        vocabulary.is_slow,
        vocabulary.is_very_slow,
        vocabulary.meets_floor,
        vocabulary.counts_for_rate,
        lambda value: vocabulary.meets_floor(24.0, floor=value),
    ],
)
def test_what_is_no_finite_number_is_never_compared(compare: object, value: float) -> None:
    """NaN <= 24 is false, so a comparison would call a session without a measurement fast."""
    assert callable(compare)
    with pytest.raises(ValueError, match="finite"):
        compare(value)


def test_a_session_counts_from_one_second_on() -> None:
    assert vocabulary.counts_for_rate(1.0)
    assert not vocabulary.counts_for_rate(math.nextafter(1.0, 0))


def test_the_first_chunk_starts_the_clock_and_is_not_counted() -> None:
    """10 s at 24 fps after a first chunk of 4 frames: 244 frames, 240 of them timed."""
    fps = vocabulary.session_fps(num_frames=244, num_first_chunk_frames=4, streamed_s=10.0)
    assert fps == 24.0


@pytest.mark.parametrize(
    ("num_frames", "num_first", "streamed_s"),
    [
        (244, 4, 0.0),
        (244, 4, -1.0),
        (244, 4, math.nan),
        (244, 4, math.inf),
        (3, 4, 10.0),
        (244, -1, 10.0),
        (0, 4, 0.0),
    ],
)
def test_nothing_is_said_of_a_session_that_makes_no_sense(
    num_frames: int, num_first: int, streamed_s: float
) -> None:
    fps = vocabulary.session_fps(
        num_frames=num_frames, num_first_chunk_frames=num_first, streamed_s=streamed_s
    )
    assert fps is None


def test_a_session_that_froze_after_its_first_chunk_has_a_rate_of_zero() -> None:
    """A freeze is a measurement, not a missing one."""
    fps = vocabulary.session_fps(num_frames=4, num_first_chunk_frames=4, streamed_s=10.0)
    assert fps == 0.0


@given(st.integers(), st.integers(), st.floats())
def test_a_session_rate_is_none_or_can_be_compared(
    frames: int, first: int, streamed: float
) -> None:
    fps = vocabulary.session_fps(
        num_frames=frames, num_first_chunk_frames=first, streamed_s=streamed
    )
    assert fps is None or math.isfinite(fps)


def test_the_step_deadline_is_that_of_four_frames() -> None:
    assert pytest.approx(166.7, abs=0.05) == vocabulary.STEP_DEADLINE_MS


def test_a_breaker_reason_that_stops_a_canary_is_one_of_three() -> None:
    assert sorted(vocabulary.HARD_STOPS) == ["nan", "out_of_memory", "rank_disagreement"]


# `printf 'a=1\nb=2' | sha256sum | cut -c1-16`
DIGEST_OF_A1_B2 = "55c420c0f44ea4c6"


def test_a_digest_of_flags_is_the_published_hash_of_its_sorted_lines() -> None:
    assert vocabulary.flags_digest({"b": "2", "a": "1"}) == DIGEST_OF_A1_B2
    assert vocabulary.stack_digest({"a": "1", "b": "2"}) == DIGEST_OF_A1_B2


HALVES = (("canary", 0.5), ("control", 0.5))


# First byte of `printf 'salt\0session-N' | sha256sum`; below 0x80 is the first half.
@pytest.mark.parametrize(
    ("session", "first_byte"),
    [
        ("session-0", 0x53),
        ("session-1", 0x7E),
        ("session-2", 0x7B),
        ("session-3", 0x60),
        ("session-4", 0xC4),
        ("session-5", 0x83),
        ("session-6", 0x14),
        ("session-7", 0x51),
    ],
)
def test_a_draw_is_the_salted_hash(session: str, first_byte: int) -> None:
    """Worker and control plane are built apart; both must draw the same arm."""
    half = "canary" if first_byte < 0x80 else "control"
    assert vocabulary.drawn_arm(session, salt="salt", shares=HALVES) == half
    tenth = "canary" if first_byte < 0x1A else "control"  # 0x1a / 256 is 0.102
    shares = (("canary", 0.1), ("control", 0.9))
    assert vocabulary.drawn_arm(session, salt="salt", shares=shares) == tenth


@pytest.mark.parametrize("share", [0.02, 0.5, 0.9])
def test_arms_are_drawn_in_their_shares(share: float) -> None:
    """Within five standard deviations of a binomial over 20,000 sessions."""
    num_sessions = 20_000
    shares = (("canary", share), ("control", 1 - share))
    drawn = Counter(
        vocabulary.drawn_arm(f"session-{number}", salt="a", shares=shares)
        for number in range(num_sessions)
    )
    deviation = math.sqrt(num_sessions * share * (1 - share))
    assert abs(drawn["canary"] - num_sessions * share) < 5 * deviation


def test_another_salt_draws_independently() -> None:
    """Else sessions of one experiment would meet the same arm in the next: half must change."""
    num_sessions = 10_000
    same = sum(
        vocabulary.drawn_arm(f"session-{n}", salt="a", shares=HALVES)
        == vocabulary.drawn_arm(f"session-{n}", salt="b", shares=HALVES)
        for n in range(num_sessions)
    )
    assert abs(same - num_sessions / 2) < 5 * math.sqrt(num_sessions / 4)


def test_salt_and_session_cannot_be_confused() -> None:
    """Without a separator `ab` + `c` and `a` + `bc` would be one draw, for every pair of ids."""
    pairs = [
        (
            vocabulary.drawn_arm(f"b{n}", salt="a", shares=HALVES),
            vocabulary.drawn_arm(f"{n}", salt="ab", shares=HALVES),
        )
        for n in range(100)
    ]
    assert any(left != right for left, right in pairs)


def test_an_arm_with_the_whole_share_takes_every_session() -> None:
    shares = (("canary", 1.0), ("control", 0.0))
    drawn = {vocabulary.drawn_arm(str(n), salt="a", shares=shares) for n in range(500)}
    assert drawn == {"canary"}


@pytest.mark.parametrize("shares", [(), (("canary", 0.5),), (("a", 0.7), ("b", 0.7))])
def test_shares_that_do_not_sum_to_one_are_refused(shares: tuple[tuple[str, float], ...]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        vocabulary.drawn_arm("session", salt="a", shares=shares)


@pytest.mark.parametrize(
    ("sets", "telling"),
    [
        ([], set()),
        ([{"a": "1"}], {"a"}),
        ([{"a": "1", "b": "1"}, {"a": "1", "b": "2"}], {"b"}),
        ([{"a": "1"}, {"a": "1", "b": "1"}], {"b"}),
        ([{"a": "1", "b": "2"}, {"b": "2", "a": "1"}], {"a", "b"}),
    ],
)
def test_sets_of_flags_are_told_apart_by_those_that_differ(
    sets: list[dict[str, str]], telling: set[str]
) -> None:
    """A worker has many flags; a table of what sessions ran has room for few."""
    assert vocabulary.telling(sets) == telling


def test_a_build_with_flags_that_nobody_asks_for_runs_what_is_asked() -> None:
    """Nothing is asked of it by a fleet that steers nothing."""
    effective = {"a": "1", "b": "2"}
    assert vocabulary.runs(effective, {"a": "1"})
    assert vocabulary.runs(effective, {})
    assert not vocabulary.runs(effective, {"a": "2"})
    assert not vocabulary.runs(effective, {"a": "1", "c": "1"})


def test_of_what_a_worker_runs_the_flags_that_it_is_told_are_shown() -> None:
    """And all of them before it is told any."""
    effective = {"a": "1", "b": "2"}
    assert vocabulary.steered(effective, {"b": "3", "c": "1"}) == {"b": "2"}
    assert vocabulary.steered(effective, {}) == effective
