"""The weekly report counts what was stored, no more and no less."""

import random
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import Outcome
from controlplane.domain.weeks import Weeks
from controlplane.services import ingest
from controlplane.store import queries
from controlplane.store import sessions as session_store
from controlplane.store import weekly as weekly_store
from controlplane.store.evidence_tables import sessions
from controlplane.store.transaction import Database
from tests import build
from tests.clock import START

_EVERY: dict[str, Any] = {
    "weeks": Weeks(),
    "fleet": build.FLEET,
    "since": date(2025, 12, 29),
    "until": date(2027, 12, 26),
}


@pytest.mark.parametrize(
    ("moment", "week"),
    [
        # ISO 8601: week 1 has the year's first Thursday; a week starts on Monday, here in UTC.
        (datetime(2026, 12, 31, tzinfo=UTC), "2026-W53"),
        (datetime(2027, 1, 3, 23, 59, tzinfo=UTC), "2026-W53"),
        (datetime(2027, 1, 4, tzinfo=UTC), "2027-W01"),
        (datetime.fromisoformat("2027-01-04T00:30:00+01:00"), "2026-W53"),
    ],
)
def test_a_week_is_the_iso_week_in_utc(moment: datetime, week: str) -> None:
    assert session_store.week_of(moment) == week


@pytest.mark.parametrize("seed", range(3))
def test_the_counts_equal_a_recount_of_the_sessions(database: Database, seed: int) -> None:
    """Counts are added up as sessions close, out of order and repeated; they must not drift."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
    told = _random_sessions(random.Random(seed))
    for start in range(0, len(told), 7):
        batch = [build.received(record) for record in told[start : start + 7]]
        now = START + timedelta(days=start)
        ingest.ingest_logs(database, identity=build.writer(), records=batch, now=now)
    with database.write() as conn:
        session_store.close_lost(conn, incarnation="incarnation-worker-1", now=START)
        counted = {
            (
                Weeks().label(row.starts_on),
                row.flags[build.FLAG],
                row.is_mixed,
            ): _counts(row)
            for row in weekly_store.rows(conn, **_EVERY)
        }
        assert counted == _recounted(conn.execute(select(sessions)).all())


def test_a_session_at_the_threshold_is_slow(database: Database) -> None:
    """Both published figures count the session at exactly 24.0 and 23.5 fps."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
    for seq, frames in enumerate((241, 240, 235, 234), start=1):
        end = build.ended(
            f"s{seq}", seq=seq, num_frames=frames, num_first_chunk_frames=0, streamed_s=10.0
        )
        told = [build.received(end)]
        ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    with database.read() as conn:
        (row,) = weekly_store.rows(conn, **_EVERY)
    assert (row.num_rated, row.num_slow, row.num_very_slow) == (4, 3, 2)
    assert (row.slow.share, row.failure.share) == (0.75, 0.0)


def test_synthetic_sessions_stand_apart(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
    told = [build.received(build.ended(is_synthetic=True))]
    ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    told = [build.received(build.ended("watched", seq=9))]
    ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    with database.read() as conn:
        kinds = [row.is_synthetic for row in weekly_store.rows(conn, **_EVERY)]
    assert kinds == [False, True]


def test_a_fleet_at_a_glance(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_fleet(conn, name="empty")
        build.put_worker(conn)
        build.put_worker(conn, "worker-2", now=START + timedelta(seconds=5))
        build.put_canary(conn)
    told = [build.received(build.started())]
    ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    with database.read() as conn:
        empty, main = queries.fleet_rows(conn)
    assert (empty.num_workers, empty.oldest_seen_at) == (0, None)
    assert (main.num_workers, main.num_open_sessions, main.num_live_canaries) == (2, 1, 1)
    assert (main.num_out_of_service, main.num_tripped, main.oldest_seen_at) == (0, 0, START)


def _random_sessions(rng: random.Random) -> list[Any]:
    told: list[Any] = []
    for number in range(40):
        flags = {build.FLAG: rng.choice([build.PLAIN, build.FUSED])}
        known: dict[str, Any] = {"session": f"s{number}", "flags": flags}
        told.append(build.started(seq=2 * number + 1, **known))
        if rng.random() < 0.8:
            told.append(_random_end(rng, seq=2 * number + 2, **known))
    told += rng.sample(told, 10)
    rng.shuffle(told)
    return told


def _random_end(rng: random.Random, **known: Any) -> Any:
    streamed_s = rng.choice([0.0, 0.5, 1.0, 10.0])
    outcome = rng.choice([Outcome.COMPLETED, Outcome.FAILED, Outcome.VIEWER_LIMITED])
    segments = [build.segment(build.PLAIN, num_frames=1), build.segment(build.FUSED, num_frames=1)]
    return build.ended(
        streamed_s=streamed_s,
        num_frames=4 + int(streamed_s * rng.uniform(23, 25)),
        outcome=outcome,
        segments=segments if rng.random() < 0.3 else [],
        **known,
    )


def _counts(row: weekly_store.WeekRow) -> tuple[int, ...]:
    return (
        row.num_sessions,
        row.num_rated,
        row.num_slow,
        row.num_very_slow,
        row.num_failed,
        row.num_viewer_limited,
    )


def _recounted(rows: Any) -> dict[tuple[str, str, bool], tuple[int, ...]]:
    """The same, from the definitions: frames after the first chunk over seconds streamed."""
    counts: dict[tuple[str, str, bool], Counter[str]] = {}
    for row in rows:
        count = counts.setdefault((row.week, row.flags[build.FLAG], row.is_mixed), Counter())
        count["sessions"] += 1
        count["failed"] += row.outcome in ("failed", "lost")
        count["viewer_limited"] += row.outcome == "viewer_limited"
        if row.outcome == "completed" and row.streamed_s >= vocabulary.LEAST_STREAMED_S:
            fps = (row.num_frames - row.num_first_chunk_frames) / row.streamed_s
            count["rated"] += 1
            count["slow"] += fps <= 24.0
            count["very_slow"] += fps <= 23.5
    names = ("sessions", "rated", "slow", "very_slow", "failed", "viewer_limited")
    return {key: tuple(count[name] for name in names) for key, count in counts.items()}
