"""Counts of ended sessions by day, fleet, hardware, stack and set of variants.

Written in the transaction that closes or imports the sessions, so that a report never reads them
one by one. Days and not weeks, so that a report may begin its weeks on any of them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Outcome
from controlplane.domain import weeks
from controlplane.domain.evidence import SessionEvidence
from controlplane.store import dialect, session_row
from controlplane.store.evidence_tables import session_days
from controlplane.store.session_row import LiveSession

COUNTS: Final = (
    "num_sessions",
    "num_rated",
    "num_slow",
    "num_very_slow",
    "num_failed",
    "num_viewer_limited",
)
_KEY: Final = tuple(column.name for column in session_days.primary_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A session that is over, as far as it is counted."""

    fleet_id: str
    hardware: str
    stack: str
    flags: Mapping[str, str]
    is_mixed: bool  # changed variant while it ran
    is_imported: bool
    evidence: SessionEvidence


def of_session(session: LiveSession, *, is_mixed: bool) -> Ended:
    """A session that was measured here."""
    return Ended(
        fleet_id=session.fleet_id,
        hardware=session.hardware,
        stack=session.stack,
        flags=session.flags,
        is_mixed=is_mixed,
        is_imported=False,
        evidence=session_row.evidence(session, worker="", canary_id=""),
    )


def count(conn: Connection, ended: Iterable[Ended]) -> None:
    """Add sessions to the counts."""
    rows = counted(ended)
    if rows:
        dialect.add_up(conn, session_days, rows, sums=COUNTS)


def counted(ended: Iterable[Ended]) -> Sequence[dict[str, Any]]:
    """Rows of counts, one for each group, in the order of their keys."""
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    flags: dict[tuple[Any, ...], dict[str, str]] = {}
    for one in ended:
        key = _key(one)
        counts.setdefault(key, Counter()).update(_counts(one.evidence))
        flags[key] = dict(one.flags)
    # Sorted, so that two transactions that touch the same groups do not wait for each other.
    return [
        {
            **dict(zip(_KEY, key, strict=True)),
            "flags": flags[key],
            **{name: counts[key][name] for name in COUNTS},
        }
        for key in sorted(counts)
    ]


def day_of(moment: datetime) -> int:
    """The day of `moment` in UTC, as `session_days` numbers it."""
    return weeks.number_of(moment.astimezone(UTC).date())


def _key(one: Ended) -> tuple[Any, ...]:
    values = {
        "day": day_of(one.evidence.started_at),
        "fleet_id": one.fleet_id,
        "hardware": one.hardware,
        "stack": one.stack,
        "variants": vocabulary.flags_digest(one.flags),
        "is_mixed": one.is_mixed,
        "is_synthetic": one.evidence.is_synthetic,
        "is_imported": one.is_imported,
    }
    return tuple(values[name] for name in _KEY)


def _counts(seen: SessionEvidence) -> dict[str, int]:
    # The judge's own words decide what counts, so that report and gate cannot disagree.
    rated = seen.fps if seen.counts_for_rate() else None
    truths = {
        "num_sessions": True,
        "num_rated": rated is not None,
        "num_slow": rated is not None and vocabulary.is_slow(rated),
        "num_very_slow": rated is not None and vocabulary.is_very_slow(rated),
        "num_failed": seen.has_failed,
        "num_viewer_limited": seen.outcome is Outcome.VIEWER_LIMITED,
    }
    # PostgreSQL adds up numbers, not truths.
    return {name: int(is_so) for name, is_so in truths.items()}
