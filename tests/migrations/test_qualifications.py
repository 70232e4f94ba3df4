"""Migration 0006 keeps what is proven, and puts canaries of the past that failed on record."""

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text

from controlplane import assets
from controlplane.domain.desired import Qualification
from controlplane.domain.ledger import Origin, Record, Standing
from controlplane.store import canaries as canary_store
from controlplane.store import qualifications as qualification_store
from controlplane.store.columns import UtcDateTime
from controlplane.store.transaction import Database
from tests import postgres

BEGAN = datetime(2026, 10, 8, tzinfo=UTC)
_EMPTY = "template1"  # PostgreSQL's own
FAILED = ("gate_failed", "hard_stopped")
SPARED = ("abort_requested", "control_lost")


@pytest.fixture(params=["sqlite", "postgresql"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database with the schema before, once of each kind, and a fleet."""
    if request.param == "sqlite":
        database = Database.open(f"sqlite:///{tmp_path / 'before.db'}")
        _begin(database)
        yield database
        database.close()
        return
    server: postgres.Server = request.getfixturevalue("postgres_server")
    with server.copy_of(_EMPTY, name=f"steadyframe_before_{os.getpid()}") as url:
        database = Database.open(url)
        _begin(database)
        yield database
        database.close()


def test_records_are_kept_with_the_decision_that_they_rest_on(before: Database) -> None:
    with before.write() as conn:
        put_canary(conn, 1, "promoted")
        put_transition(conn, 1, "started", "preflight", hour=1)
        put_transition(conn, 1, "bake_passed", "promoted", hour=2, decision="decision-1")
        put_proven(conn, hour=2, canary_id="canary-1", reason="every gate passes")
        put_proven(conn, hour=3, variant="fused_all", reason="ran well for weeks")
        put_proven(conn, hour=4, stack="0" * 16, revoked=5)
    proven, attested, revoked = migrated(before)

    assert [one.standing for one in (proven, attested, revoked)] == [Standing.QUALIFIED] * 3
    assert (proven.canary, proven.decision) == ("fused-allreduce-1", "decision-1")
    assert proven.evidence_digest == "e" * 64
    assert (proven.actor, proven.reason) == ("ada", "every gate passes")
    assert proven.created_at == BEGAN + timedelta(hours=2)
    assert (proven.fleet, proven.basis) == (None, None)
    assert (attested.origin, attested.subject.variant) == (Origin.ATTESTED, "fused_all")
    assert (attested.canary, attested.decision, attested.fleet) == (None, None, None)
    assert revoked.revoked_at == BEGAN + timedelta(hours=5)
    assert (revoked.revoked_reason, revoked.revoked_by) == ("no longer", None)


@pytest.mark.parametrize("event", FAILED)
def test_a_canary_that_failed_disqualifies_its_variant(before: Database, event: str) -> None:
    with before.write() as conn:
        put_sent_back(conn, 1, event, hour=2)
    (record,) = migrated(before)

    assert (record.standing, record.canary) == (Standing.DISQUALIFIED, "fused-allreduce-1")
    assert (record.decision, record.reason) == ("decision-1", f"for {event}")
    assert record.created_at == BEGAN + timedelta(hours=4)


@pytest.mark.parametrize("event", SPARED)
def test_a_canary_that_was_aborted_or_lost_disqualifies_nothing(
    before: Database, event: str
) -> None:
    with before.write() as conn:
        put_sent_back(conn, 1, event, hour=2)
    assert migrated(before) == ()


def test_one_that_is_still_on_its_way_back_is_recorded_when_it_is_back(before: Database) -> None:
    """The release that is live then does so, in the transaction of the last transition."""
    with before.write() as conn:
        put_canary(conn, 1, "contained")
        put_transition(conn, 1, "gate_failed", "rolling_back", hour=1)
    assert migrated(before) == ()


@pytest.mark.parametrize(
    ("proven_hour", "revoked_hour", "standing", "attempts"),
    [
        (1, None, Standing.QUALIFIED, 1),  # proven, then failed elsewhere: left as it runs
        (9, None, Standing.QUALIFIED, 2),  # failed, then proven: as it would be today
        (1, 3, Standing.DISQUALIFIED, 2),
        (9, 10, Standing.DISQUALIFIED, 2),
    ],
)
def test_no_running_worker_is_taken_off_its_variant_by_a_migration(
    before: Database,
    proven_hour: int,
    revoked_hour: int | None,
    standing: Standing,
    attempts: int,
) -> None:
    """An upgrade is no decision about a variant; but what failed stays failed."""
    with before.write() as conn:
        put_canary(conn, 2, "promoted")
        put_sent_back(conn, 1, "gate_failed", hour=2)
        put_proven(conn, hour=proven_hour, canary_id="canary-2", revoked=revoked_hour)
    records = migrated(before)

    with before.read() as conn:
        found = qualification_store.standings(conn, fleet="main")
    assert set(found.values()) == {standing}
    assert 1 + sum(one.standing is Standing.DISQUALIFIED for one in records) == attempts


def test_canaries_of_the_past_were_first_attempts(before: Database) -> None:
    with before.write() as conn:
        put_sent_back(conn, 1, "gate_failed", hour=2)
    migrated(before)
    with before.read() as conn:
        assert canary_store.get(conn, name_or_id="canary-1").attempt == 1
    with pytest.raises(Exception, match="ck_canaries_attempt_counts"), before.write() as conn:
        conn.execute(text("UPDATE canaries SET attempt = 0"))


def test_the_ledger_goes_on_where_the_records_end(before: Database) -> None:
    """A number that is given twice would stop the first canary after the upgrade."""
    with before.write() as conn:
        put_proven(conn, hour=1)
        put_proven(conn, hour=2, variant="fused_all")
    records = migrated(before)
    entry = qualification_store.Entry(
        subject=records[0].subject, standing=Standing.QUALIFIED, actor="ada", reason="again"
    )
    with before.write() as conn:
        number = qualification_store.append(conn, entry, now=BEGAN)
    assert number > max(one.number for one in records)


def migrated(database: Database) -> tuple[Record, ...]:
    """Every record after the migration, oldest first."""
    database.migrate(assets.migrations())
    with database.read() as conn:
        rows = conn.execute(text("SELECT flag, variant, hardware, stack FROM qualifications"))
        subjects = {Qualification(**row._asdict()) for row in rows}
        found = [r for one in subjects for r in qualification_store.of_subject(conn, one)]
    return tuple(sorted(found, key=lambda record: record.number))


def put_sent_back(conn: Connection, number: int, event: str, *, hour: int) -> None:
    """A canary that is rolled back two hours after `event`."""
    put_canary(conn, number, "rolled_back")
    put_transition(conn, number, event, "rolling_back", hour=hour, decision=f"decision-{number}")
    put_transition(conn, number, "containment_seen", "contained", hour=hour + 1)
    put_transition(conn, number, "verification_seen", "rolled_back", hour=hour + 2)


def put_canary(conn: Connection, number: int, phase: str) -> None:
    put(
        conn,
        "canaries",
        id=f"canary-{number}",
        name=f"fused-allreduce-{number}",
        fleet_id="fleet",
        flag="fused_allreduce",
        variant="fused_steady",
        baseline="nccl",
        hardware="cpu",
        stack="1" * 16,
        policy_digest="d" * 64,
        salt="salt",
        phase=phase,
        step=0,
        created_at=moment(conn, 0),
        phase_since=moment(conn, 0),
        step_since=moment(conn, 0),
        bake=0,
        num_lease_lapses=0,
        reason="",
        version=1,
    )


def put_transition(
    conn: Connection, number: int, event: str, to: str, *, hour: int, decision: str | None = None
) -> None:
    canary = f"canary-{number}"
    at = moment(conn, hour)
    if decision is not None:
        put(
            conn,
            "decisions",
            id=decision,
            canary_id=canary,
            verdict="passing",
            gates="[]",
            inputs="{}",
            digest="e" * 64,
            at=at,
        )
    put(
        conn,
        "transitions",
        canary_id=canary,
        event=event,
        phase_from="progressing",
        phase_to=to,
        step=0,
        reason=f"for {event}",
        actor="steadyframe",
        decision_id=decision,
        at=at,
    )


def put_proven(
    conn: Connection,
    *,
    hour: int,
    revoked: int | None = None,
    **changes: Any,
) -> None:
    base: dict[str, Any] = {
        "flag": "fused_allreduce",
        "variant": "fused_steady",
        "hardware": "cpu",
        "stack": "1" * 16,
        "canary_id": None,
        "actor": "ada",
        "reason": "",
        "created_at": moment(conn, hour),
        "revoked_at": None if revoked is None else moment(conn, revoked),
        "revoked_reason": None if revoked is None else "no longer",
    }
    put(conn, "qualifications", **{**base, **changes})


def put(conn: Connection, table: str, **values: Any) -> None:
    """A row as the release before wrote it, past the code of this one."""
    row: Mapping[str, Any] = values
    places = ", ".join(f":{name}" for name in row)
    conn.execute(text(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({places})"), row)  # noqa: S608 - our own words


def moment(conn: Connection, hour: int) -> Any:
    """A time as the driver keeps it."""
    return UtcDateTime().process_bind_param(BEGAN + timedelta(hours=hour), conn.dialect)


def _begin(database: Database) -> None:
    with database.write() as conn:
        config = Config()
        config.set_main_option("script_location", str(assets.migrations()))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = conn
        conn.execute(text("SELECT 1"))  # sends BEGIN
        command.upgrade(config, "0005")
        put(conn, "fleets", id="fleet", name="main", mode="enforce", promoted="{}", version=1)
        at = moment(conn, 0)
        put(
            conn,
            "policies",
            digest="d" * 64,
            name="test",
            flag="fused_allreduce",
            summary="",
            document="",
            created_at=at,
        )
