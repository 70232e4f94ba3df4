"""Counts of closed sessions by week, fleet, hardware, stack and set of variants.

Written in the transaction that closes the sessions, so that a report never reads them one by one.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Outcome
from controlplane.store import dialect, session_row
from controlplane.store.evidence_tables import session_rollups
from controlplane.store.session_row import LiveSession

COUNTS: Final = (
    "num_sessions",
    "num_rated",
    "num_slow",
    "num_very_slow",
    "num_failed",
    "num_viewer_limited",
)
_KEY: Final = tuple(column.name for column in session_rollups.primary_key)


def count(conn: Connection, closed: Sequence[tuple[str, LiveSession, bool]]) -> None:
    """Add closed sessions, each with its week and whether it changed variant, to the counts."""
    rows = counted(closed)
    if rows:
        dialect.add_up(conn, session_rollups, rows, sums=COUNTS)


def counted(closed: Iterable[tuple[str, LiveSession, bool]]) -> list[dict[str, Any]]:
    """Rows of counts, one for each group, in the order of their keys."""
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    flags: dict[tuple[Any, ...], dict[str, str]] = {}
    for week, session, is_mixed in closed:
        key = _key(week, session, is_mixed=is_mixed)
        counts.setdefault(key, Counter()).update(_counts(session))
        flags[key] = session.flags
    # Sorted, so that two transactions that touch the same groups do not wait for each other.
    return [
        {
            **dict(zip(_KEY, key, strict=True)),
            "flags": flags[key],
            **{name: counts[key][name] for name in COUNTS},
        }
        for key in sorted(counts)
    ]


def _key(week: str, session: LiveSession, *, is_mixed: bool) -> tuple[Any, ...]:
    values = {
        "week": week,
        "fleet_id": session.fleet_id,
        "hardware": session.hardware,
        "stack": session.stack,
        "variants": vocabulary.flags_digest(session.flags),
        "is_mixed": is_mixed,
        "is_synthetic": session.is_synthetic,
    }
    return tuple(values[name] for name in _KEY)


def _counts(session: LiveSession) -> dict[str, int]:
    # The judge's own words decide what counts, so that report and gate cannot disagree.
    seen = session_row.evidence(session, worker="", canary_id="")
    rated = session.fps if seen.counts_for_rate() else None
    truths = {
        "num_sessions": True,
        "num_rated": rated is not None,
        "num_slow": rated is not None and vocabulary.is_slow(rated),
        "num_very_slow": rated is not None and vocabulary.is_very_slow(rated),
        "num_failed": seen.has_failed,
        "num_viewer_limited": session.outcome is Outcome.VIEWER_LIMITED,
    }
    # PostgreSQL adds up numbers, not truths.
    return {name: int(is_so) for name, is_so in truths.items()}
