"""One value of a document at a time."""

import math
from datetime import timedelta
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.domain.document import (
    Table,
    duration_text,
    share_text,
    size_text,
)
from controlplane.domain.errors import InvalidValueError

DAY = timedelta(days=1)
ZERO = timedelta(0)


def of(value: object) -> Table:
    return Table({"key": value}, "steps[2]")


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("15h", timedelta(hours=15)),
        ("90s", timedelta(seconds=90)),
        ("10m", timedelta(minutes=10)),
        ("500ms", timedelta(milliseconds=500)),
        ("14d", timedelta(days=14)),
    ],
)
def test_a_duration_is_a_number_and_a_unit(spelled: str, meant: timedelta) -> None:
    assert of(spelled).duration("key", least=ZERO, most=30 * DAY) == meant


@pytest.mark.parametrize(
    "spelled",
    [
        *("", "15", 15, 15.0, "h", "15 h", "1h30m", "1.5h", "-1h", "+1h", "1w", "1H", "1M", "1us"),
        *("1h\n", "١h", "9999999999s", "31d", True, None, ["1h"], {}, math.nan),  # noqa: RUF001
    ],
)
def test_any_other_spelling_of_a_duration_is_refused(spelled: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^steps\[2\]\.key: .*allowed: a whole number"):
        of(spelled).duration("key", least=ZERO, most=30 * DAY)


@given(st.integers(1, 10**8))
def test_a_duration_comes_back_as_it_was_spelled(milliseconds: int) -> None:
    value = timedelta(milliseconds=milliseconds)
    assert of(duration_text(value)).duration("key", least=ZERO, most=30 * DAY) == value


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [("100B", 100), ("512KiB", 524_288), ("64MiB", 67_108_864), ("1GiB", 1_073_741_824)],
)
def test_a_size_is_a_number_and_a_binary_unit(spelled: str, meant: int) -> None:
    assert of(spelled).size("key", most=2**40) == meant


@pytest.mark.parametrize("spelled", ["64", 64, "64MB", "64mib", "-1B", "1.5MiB", "2048GiB", None])
def test_any_other_spelling_of_a_size_is_refused(spelled: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^steps\[2\]\.key: "):
        of(spelled).size("key", most=2**40)


@given(st.integers(0, 2**29))
def test_a_size_comes_back_as_it_was_spelled(num_bytes: int) -> None:
    assert of(size_text(num_bytes)).size("key", most=2**40) == num_bytes


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [("25%", Fraction(1, 4)), ("12.5%", Fraction(1, 8)), ("0.0001%", Fraction(1, 10**6))],
)
def test_a_share_is_exact(spelled: str, meant: Fraction) -> None:
    assert of(spelled).share("key", most=Fraction(1)) == meant


@pytest.mark.parametrize(
    "spelled",
    ["0%", "101%", "25", 0.25, "25 %", "%", "1e1%", "-1%", "0.00001%", "nan%", True, None],
)
def test_any_other_spelling_of_a_share_is_refused(spelled: object) -> None:
    with pytest.raises(InvalidValueError, match=r"^steps\[2\]\.key: "):
        of(spelled).share("key", most=Fraction(1))


@given(st.integers(1, 10**6))
def test_a_share_survives_being_a_float(millionths: int) -> None:
    """The policy keeps some shares as floats; the canonical document must not drift by that."""
    share = Fraction(millionths, 10**6)
    assert of(share_text(float(share))).share("key", most=Fraction(1)) == share
    assert share_text(float(share)) == share_text(share)


@pytest.mark.parametrize("value", [True, False, "1", 1.0, None, math.nan, 10**400, -1, 11])
def test_a_whole_number_is_no_boolean_text_or_float(value: object) -> None:
    with pytest.raises(InvalidValueError, match="a whole number from 0 to 10"):
        of(value).whole("key", least=0, most=10)


@pytest.mark.parametrize("value", [True, "1", None, math.nan, math.inf, -math.inf, 10**400, 0.5])
def test_a_number_is_finite_and_within_its_range(value: object) -> None:
    with pytest.raises(InvalidValueError, match="a number from 1 to 240"):
        of(value).number("key", least=1.0, most=240.0)


@pytest.mark.parametrize("value", ["\x00", "\x1b[31m", "\ud800", "x" * 501, 1, None, ["text"]])
def test_text_is_printable_and_short(value: object) -> None:
    """It is shown on terminals and pages, and must survive being encoded."""
    with pytest.raises(InvalidValueError, match="printable text"):
        of(value).text("key")


def test_line_breaks_in_text_are_spaces() -> None:
    assert of("two\n  lines\n").text("key") == "two lines"


def test_null_is_not_a_default() -> None:
    """`bake:` with its value forgotten must not read as the default."""
    with pytest.raises(InvalidValueError):
        of(None).duration("key", least=ZERO, most=DAY, default=DAY)
    with pytest.raises(InvalidValueError):
        of(None).share("key", most=Fraction(1), default=Fraction(1))
    with pytest.raises(InvalidValueError):
        of(None).whole("key", least=0, most=1, default=1)
    with pytest.raises(InvalidValueError):
        of(None).word("key", ["a"], default="a")


def test_a_refusal_is_one_short_line_whatever_the_value() -> None:
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]
    for value in (deep, "x" * 10_000, 10**5_000, [10**5_000] * 50, {1: {2: {3: 10**5_000}}}):
        with pytest.raises(InvalidValueError) as refusal:
            of(value).boolean("key", default=True)
        assert len(str(refusal.value)) < 1_000
        assert "\n" not in str(refusal.value)
