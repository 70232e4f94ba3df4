"""What a probe found: named checks, each with a verdict, and the verdict of all of them.

No torch: a supervisor reads what a child process wrote.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What came of a check; what was not measured never counts as passed."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    UNMEASURED = "unmeasured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One question and its answer."""

    name: str
    verdict: Verdict
    value: float | None = None  # None: nothing was measured, or what was is no finite number
    bound: float | None = None  # the most that passes
    detail: str = ""


def held(name: str, value: float, *, bound: float, detail: str = "") -> Check:
    """`value` against the most that passes; a NaN or an infinity fails whatever the bound."""
    if not math.isfinite(value):
        why = f"{value} is no finite number"
        detail = f"{detail}; {why}" if detail else why
        return Check(name=name, verdict=Verdict.FAIL, bound=bound, detail=detail)
    verdict = Verdict.PASS if value <= bound else Verdict.FAIL
    return Check(name=name, verdict=verdict, value=value, bound=bound, detail=detail)


def unmeasured(name: str, why: str) -> Check:
    """A question that could not be asked here."""
    return Check(name=name, verdict=Verdict.UNMEASURED, detail=why)


def overall(checks: Iterable[Check]) -> Verdict:
    """Fail at one that fails, else unmeasured at one that is or without any, else pass."""
    verdicts = {check.verdict for check in checks}
    if Verdict.FAIL in verdicts:
        return Verdict.FAIL
    return Verdict.PASS if verdicts == {Verdict.PASS} else Verdict.UNMEASURED


def to_fields(check: Check) -> dict[str, Any]:
    """The check as JSON values."""
    return {
        "name": check.name,
        "verdict": check.verdict.value,
        "value": check.value,
        "bound": check.bound,
        "detail": check.detail,
    }
