"""Weeks as reports have them, and rates with the interval that their numbers allow. Pure.

A week has seven days in UTC. ISO weeks begin on Mondays; anchored ones are counted in both
directions from a date, such as the day a kernel was switched on again.
"""

import math
import re
from dataclasses import dataclass
from datetime import date, timedelta

from controlplane.domain.errors import InvalidValueError

EPOCH = date(1970, 1, 1)
# Whatever was measured lies between; it keeps every sum of days inside what a date can hold.
FIRST_DAY = date(2000, 1, 1)
LAST_DAY = date(2199, 12, 31)
DAYS_A_WEEK = 7
# 1970-01-05 was a Monday.
_ISO_PHASE = 4
# Two-sided 95 %: the 0.975 quantile of the normal distribution.
_Z = 1.959963984540054
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Weeks:
    """A way to cut time into weeks."""

    anchor: date | None = None  # None: ISO weeks

    @property
    def phase(self) -> int:
        """Days from 1970-01-01 to the first beginning of a week."""
        return _ISO_PHASE if self.anchor is None else number_of(self.anchor) % DAYS_A_WEEK

    def start_of(self, day: date) -> date:
        """The first day of the week that `day` is in."""
        return day - timedelta(days=(number_of(day) - self.phase) % DAYS_A_WEEK)

    def label(self, start: date) -> str:
        """How a week that begins on `start` is called: 2026-W41, or its first day if anchored."""
        if self.anchor is not None:
            return start.isoformat()
        year, week, _ = start.isocalendar()
        return f"{year}-W{week:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A share of a whole that is named beside it; rates of different wholes are never added."""

    number: int
    total: int

    @property
    def share(self) -> float | None:
        """In [0, 1], or None where there is nothing to take a share of."""
        return self.number / self.total if self.total else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Where the share may lie, at 95 %, or None where there is nothing.

        Wilson's score interval, which Brown, Cai and DasGupta recommend for small totals and shares
        near 0 or 1, where the textbook one fails. It takes sessions as independent; sessions of one
        worker on one bad day are not, so that the truth is wider.

        Sources: Wilson (1927), JASA 22:209; Brown, Cai and DasGupta (2001), Statistical Science
        16:101, "Interval estimation for a binomial proportion".
        """
        if self.share is None:
            return None
        spread = _Z * _Z / self.total
        centre = self.share + spread / 2
        half = _Z * math.sqrt(self.share * (1 - self.share) / self.total + spread / 4 / self.total)
        # At the ends the bound is the end itself; rounding must not leave it a hair inside.
        low = 0.0 if self.number == 0 else (centre - half) / (1 + spread)
        high = 1.0 if self.number == self.total else (centre + half) / (1 + spread)
        return low, high


def number_of(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - EPOCH).days


def day_of(text: str, *, key: str) -> date:
    """The date that `text` says.

    Raises:
        InvalidValueError: it is none, or none that a report can have.
    """
    allowed = f"a date such as 2026-10-08, from {FIRST_DAY} to {LAST_DAY}"
    if not _DATE.fullmatch(text):
        raise InvalidValueError(key, text, allowed=allowed)
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(key, text, allowed=allowed) from None
    if not FIRST_DAY <= day <= LAST_DAY:
        raise InvalidValueError(key, text, allowed=allowed)
    return day
