"""What of decoding is hidden: pure arithmetic on intervals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.decode import overlap
from worker.decode.overlap import Diffusions, Interval

_LATEST = 60
_TICK_NS = 1_000_000  # one millisecond, so that every figure is a whole number


def _interval(begun: int, ended: int) -> Interval:
    return Interval(begun * _TICK_NS, ended * _TICK_NS)


@st.composite
def diffusions(draw: st.DrawFn) -> list[Interval]:
    """As rank 0 makes them: one after the other, with or without a pause."""
    cuts = sorted(draw(st.lists(st.integers(0, _LATEST), max_size=8)))
    return [_interval(*pair) for pair in zip(cuts[::2], cuts[1::2], strict=False)]


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    begun, ended = sorted(draw(st.tuples(st.integers(0, _LATEST), st.integers(0, _LATEST))))
    return _interval(begun, ended)


@given(busy=intervals(), beside=diffusions())
def test_exposed_and_hidden_are_the_ticks_counted_one_by_one(
    busy: Interval, beside: list[Interval]
) -> None:
    """And so they add up to what the work took, whatever the order of the events."""
    ticks = range(busy.begun_ns, busy.ended_ns, _TICK_NS)
    num_hidden = sum(any(d.begun_ns <= tick < d.ended_ns for d in beside) for tick in ticks)
    found = overlap.overlap(busy, beside)
    assert (found.hidden_ms, found.exposed_ms) == (num_hidden, len(ticks) - num_hidden)
    assert found.hidden_ms + found.exposed_ms == busy.length_ns / _TICK_NS


@pytest.mark.parametrize(
    ("beside", "hidden_ms"),
    [
        ([], 0),
        ([(0, 10)], 0),  # ended as the work began
        ([(20, 30)], 0),
        ([(5, 25)], 10),
        ([(12, 15)], 3),
        ([(5, 12), (18, 40)], 4),
    ],
)
def test_only_what_ran_at_the_same_time_hides(
    beside: list[tuple[int, int]], hidden_ms: float
) -> None:
    """Work from 10 to 20 ms."""
    found = overlap.overlap(_interval(10, 20), [_interval(*each) for each in beside])
    assert (found.hidden_ms, found.exposed_ms) == (hidden_ms, 10 - hidden_ms)


@given(busy=intervals(), beside=diffusions(), now=st.integers(0, _LATEST))
def test_what_is_heard_of_a_diffusion_before_it_ends_hides_as_much(
    busy: Interval, beside: list[Interval], now: int
) -> None:
    """The decoder is done in the middle of the next diffusion, and does not wait for its end."""
    heard, now_ns = Diffusions(), now * _TICK_NS
    for each in beside:
        if each.begun_ns < now_ns:
            heard.begin(each.begun_ns)
        if each.ended_ns < now_ns:
            heard.end(each.ended_ns)
    done = Interval(busy.begun_ns, max(busy.begun_ns, min(busy.ended_ns, now_ns)))
    assert overlap.overlap(done, heard.until(now_ns)) == overlap.overlap(done, beside)


@given(beside=diffusions(), busy=intervals())
def test_what_was_over_before_is_forgotten_and_not_missed(
    beside: list[Interval], busy: Interval
) -> None:
    """A session of hours keeps as many intervals as a short one."""
    heard = Diffusions()
    for each in beside:
        heard.begin(each.begun_ns)
        heard.end(each.ended_ns)
    heard.forget_before(busy.begun_ns)
    kept = heard.until(_LATEST * _TICK_NS)
    assert all(each.ended_ns > busy.begun_ns for each in kept)
    assert overlap.overlap(busy, kept) == overlap.overlap(busy, beside)
