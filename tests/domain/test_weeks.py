"""Weeks and rates: the calendar is ISO 8601's, the interval is the literature's."""

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.errors import InvalidValueError
from controlplane.domain.weeks import FIRST_DAY, LAST_DAY, Rate, Weeks, day_of

days = st.dates(min_value=FIRST_DAY, max_value=LAST_DAY)


@given(days)
def test_a_week_without_an_anchor_is_python_s_iso_week(day: date) -> None:
    year, week, _ = day.isocalendar()
    start = Weeks().start_of(day)
    assert start == date.fromisocalendar(year, week, 1)
    assert Weeks().label(start) == f"{year}-W{week:02}"


@given(days, days)
def test_an_anchored_week_is_counted_from_the_anchor_in_both_directions(
    day: date, anchor: date
) -> None:
    start = Weeks(anchor=anchor).start_of(day)
    assert timedelta(0) <= day - start < timedelta(days=7)
    assert (start - anchor).days % 7 == 0


def test_the_day_of_the_anchor_begins_its_week() -> None:
    """8 October 2026 is when the source's kernel was switched on again; a Thursday."""
    weeks = Weeks(anchor=date(2026, 10, 8))
    assert weeks.start_of(date(2026, 10, 8)) == date(2026, 10, 8)
    assert weeks.start_of(date(2026, 10, 7)) == date(2026, 10, 1)
    assert weeks.label(date(2026, 10, 1)) == "2026-10-01"


@pytest.mark.parametrize(
    ("number", "total", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17:857, table I, method 3.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_the_interval_is_wilson_s(number: int, total: int, low: float, high: float) -> None:
    interval = Rate(number=number, total=total).interval
    assert interval is not None
    assert interval[0] == pytest.approx(low, abs=5e-5)
    assert interval[1] == pytest.approx(high, abs=5e-5)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_share_lies_in_its_interval_and_both_between_0_and_1(first: int, second: int) -> None:
    rate = Rate(number=min(first, second), total=max(first, second))
    if rate.total == 0:
        assert (rate.share, rate.interval) == (None, None)
        return
    assert rate.share is not None
    assert rate.interval is not None
    low, high = rate.interval
    assert 0 <= low <= rate.share <= high <= 1


@pytest.mark.parametrize(
    "text", ["", "1999-12-31", "2200-01-01", "2026-02-30", "20261008", "٢٠٢٦-10-08"]
)
def test_what_is_no_day_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(InvalidValueError, match=r"anchor: .* a date such as 2026-10-08"):
        day_of(text, key="anchor")
