"""How one gate is written in a policy: the keys it has, read, spelled again, and said in words."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from controlplane.domain.document import Table

# Bounds against absurd values, not advice. Below half a second a duration is shorter than a tick.
LEAST: Final = timedelta(milliseconds=500)
MOST: Final = timedelta(days=30)
MOST_COUNT: Final = 1_000_000
MOST_SIZE: Final = 2**40
MOST_LENGTH: Final = 1_000_000  # of a first forward, as a viewer may ask for it
MOST_EVIDENCE: Final = 1e6


@dataclass(frozen=True, slots=True)
class Form:
    """How one gate is written."""

    metric: str  # that it judges
    keys: frozenset[str]  # beside `gate` and `metric`
    read: Callable[[Table], Any]
    bounds: Callable[[Any], dict[str, object]]  # what its document says, in one spelling
    words: Callable[[Any], str]


def duration(fields_: Table, name: str) -> timedelta:
    """A duration that a policy may state."""
    return fields_.duration(name, least=LEAST, most=MOST)


def evidence(fields_: Table, name: str, default: float) -> float:
    """An e-value, 1 or more."""
    return fields_.number(name, least=1.0, most=MOST_EVIDENCE) if name in fields_ else default
