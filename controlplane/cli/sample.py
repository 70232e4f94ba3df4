"""Seven weeks of made-up sessions with the published shape, the same at every call.

Published: in the five weeks before 8 October 2026 7 to 23 % of sessions a week averaged 24 fps or
less, then 0.7 %; over seven weeks 99.5 % were above 23.5 fps; very slow 0.08 % after. Ours: the
number of sessions, which week has which share, failures, and everything else.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from controlplane.cli.session_files import SessionTable

FLEET: Final = "sample"
SEED: Final = 20261008
FUSED_SINCE: Final = datetime(2026, 10, 8, tzinfo=UTC)
RATED_A_WEEK: Final = 2500
# Of 2,500: 14, 23, 18, 11 and 7 %, then 0.7 %. Very slow: 4 of 5,000 after, and so many before that
# 87 of 17,500 are 0.5 %.
_SLOW: Final = (350, 575, 450, 275, 175, 18, 17)
_VERY_SLOW: Final = (16, 26, 20, 13, 8, 2, 2)
_TOO_SHORT: Final = 40  # under a second: in no rate
_FAILED: Final = (6, 5, 7, 5, 6, 4, 5)
_WEEKS_BEFORE: Final = 5
_WEEK_S: Final = 7 * 24 * 3600
_STACKS: Final = ("torch=2.9;nccl=2.27;driver=570.86", "torch=2.11;nccl=2.28.9;driver=580.82")
_COLUMNS: Final = (
    *("session", "started_at", "worker", "hardware", "stack", "flags", "streamed_s", "fps"),
    *("outcome", "reason", "first_forward_length"),
)


def table() -> SessionTable:
    """The sessions, oldest week first."""
    rng = random.Random(SEED)  # noqa: S311 - made-up data, not a secret
    rows = [row for week in range(len(_SLOW)) for row in _week(week, rng)]
    return SessionTable(columns=_COLUMNS, lines=range(2, len(rows) + 2), rows=rows)


def _week(week: int, rng: random.Random) -> Iterator[Sequence[str]]:
    num_fast = RATED_A_WEEK - _SLOW[week]
    num_slow = _SLOW[week] - _VERY_SLOW[week]
    # Two decimals, so that no fps comes to lie on a threshold by rounding.
    fps = [
        *(rng.uniform(24.05, 24.6) for _ in range(num_fast)),
        *(rng.uniform(23.6, 23.95) for _ in range(num_slow)),
        *(rng.uniform(19.0, 23.4) for _ in range(_VERY_SLOW[week])),
    ]
    kinds = [
        *((f"{one:.2f}", "completed", "", _length_s(rng)) for one in fps),
        *(("", "completed", "", rng.uniform(0.1, 0.9)) for _ in range(_TOO_SHORT)),
        *(("", "failed", "process_lost", 0.0) for _ in range(_FAILED[week])),
    ]
    rng.shuffle(kinds)
    for number, kind in enumerate(kinds):
        yield _row(week, number, kind, rng)


def _row(
    week: int, number: int, kind: tuple[str, str, str, float], rng: random.Random
) -> Sequence[str]:
    fps, outcome, reason, streamed_s = kind
    began = FUSED_SINCE + timedelta(weeks=week - _WEEKS_BEFORE)
    is_fused = week >= _WEEKS_BEFORE
    return (
        f"sample-{week + 1}-{number:04}",
        (began + timedelta(seconds=rng.randrange(_WEEK_S))).isoformat(),
        f"worker-{rng.randrange(12):02}",
        "h100x4",
        _STACKS[is_fused],
        "fused_allreduce=fused_steady" if is_fused else "fused_allreduce=nccl",
        f"{streamed_s:.1f}",
        fps,
        outcome,
        reason,
        str(rng.randrange(40, 760)),
    )


def _length_s(rng: random.Random) -> float:
    """Conversations: many short, few long; a second at least."""
    return min(3600.0, 1.0 + rng.expovariate(1 / 180))
