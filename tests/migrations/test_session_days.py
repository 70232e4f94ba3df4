"""Migration 0003 counts the sessions that are there already, as they would be counted today."""

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection, select, text

from controlplane import assets
from controlplane.contract.vocabulary import Outcome
from controlplane.store import rollups, session_row
from controlplane.store.evidence_tables import session_days, sessions
from controlplane.store.tables import incarnations, stacks
from controlplane.store.transaction import Database
from tests import build
from tests.migrations.steps import migrate, put_fleet

BEGAN = datetime(2026, 10, 8, tzinfo=UTC)


def test_the_sessions_of_a_filled_database_are_counted(empty: Database) -> None:
    """A report that begins with the migration would hide the weeks it is wanted for."""
    with empty.write() as conn:
        migrate(conn, to="0002")
        _fill(conn, random.Random(7))
        before = conn.execute(select(sessions).order_by(sessions.c.id)).all()
    empty.migrate(assets.migrations())
    with empty.read() as conn:
        found = [row._asdict() for row in conn.execute(select(session_days))]
        after = conn.execute(select(sessions).order_by(sessions.c.id)).all()
    ended = (rollups.of_session(session_row.from_row(row), is_mixed=row.is_mixed) for row in before)
    assert _sorted(found) == _sorted(rollups.counted(ended))
    assert before == after


def test_a_fleet_that_was_there_is_no_sample_and_no_sample_ever_enforces(empty: Database) -> None:
    """The database itself refuses what no service would do."""
    with empty.write() as conn:
        migrate(conn, to="0002")
        put_fleet(conn)
    empty.migrate(assets.migrations())
    with empty.read() as conn:
        assert conn.scalars(text("SELECT is_sample FROM fleets")).one() in (False, 0)
    with pytest.raises(Exception, match="ck_fleets_sample_observes"), empty.write() as conn:
        conn.execute(text("UPDATE fleets SET is_sample = true"))


def _fill(conn: Connection, rng: random.Random) -> None:
    put_fleet(conn)
    conn.execute(
        stacks.insert().values(
            digest=build.STACK, parts=dict(build.STACK_PARTS), first_seen_at=BEGAN
        )
    )
    conn.execute(
        text(
            "INSERT INTO workers (id, fleet_id, name, hardware, stack, incarnation,"
            " incarnation_since, address, capabilities, reported_generation, effective_generation,"
            " effective_flags, flag_bytes, last_seen_at, is_cordoned, is_quarantined,"
            " is_break_glass, is_lease_lapsed, refused)"
            " VALUES ('worker', 'fleet', 'worker-1', 'cpu', :stack, 'life', :at,"
            " '', '{}', 0, 0, '{}', '{}', :at, false, false, false, false, '')"
        ),
        {"stack": build.STACK, "at": _moment(conn)},
    )
    conn.execute(
        incarnations.insert().values(
            id="life",
            worker_id="worker",
            hardware="cpu",
            stack=build.STACK,
            started_at=BEGAN,
            num_records=0,
            highest_seq=0,
        )
    )
    conn.execute(sessions.insert(), [_session(number, rng) for number in range(200)])


def _moment(conn: Connection) -> object:
    """What a driver takes for a time where no column type helps."""
    return 0 if conn.dialect.name == "sqlite" else BEGAN


def _session(number: int, rng: random.Random) -> dict[str, Any]:
    # Whole seconds at 23, 23.5, 24 and 24.5 fps: every threshold is met exactly by some.
    streamed_s = rng.choice([0.0, 0.5, 1.0, 10.0, 60.0])
    at = BEGAN + timedelta(hours=rng.randrange(24 * 20))
    return {
        "week": "2026-W41",
        "id": f"session-{number:03}",
        "worker_id": "worker",
        "incarnation": "life",
        "fleet_id": "fleet",
        "hardware": rng.choice(["cpu", "h100x4"]),
        "stack": build.STACK,
        "flags": {build.FLAG: rng.choice([build.PLAIN, build.FUSED])},
        "first_forward_length": 0,
        "is_synthetic": rng.random() < 0.2,
        "seq": 1,
        "generation": 1,
        "started_at": at,
        "updated_at": at,
        "num_frames": 4 + int(streamed_s * rng.choice([23, 23.5, 24, 24.5])),
        "num_first_chunk_frames": 4,
        "streamed_s": streamed_s,
        "viewer_wait_s": 0.0,
        "num_late_chunks": 0,
        "longest_stall_ms": 0.0,
        "num_steps": 0,
        "num_non_compliant_steps": 0,
        "outcome": rng.choice(list(Outcome)).value,
        "detail": "",
        "ended_at": at,
        "is_mixed": rng.random() < 0.2,
    }


def _sorted(rows: Any) -> list[Any]:
    return sorted((sorted(row.items(), key=str) for row in rows), key=str)
