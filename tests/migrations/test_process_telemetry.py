"""Migration 0010 leaves the process windows that are there as they are, and new ones say more."""

from sqlalchemy import Connection, select, text

from controlplane import assets
from controlplane.contract.telemetry import Clamps
from controlplane.services import ingest
from controlplane.store import session_views
from controlplane.store.evidence_tables import process_windows
from controlplane.store.tables import incarnations, stacks
from controlplane.store.transaction import Database
from tests import build
from tests.clock import START
from tests.migrations.steps import migrate, moment, put_fleet


def test_a_window_from_before_is_kept_and_tells_nothing_new(empty: Database) -> None:
    """An empty column is not measured; it must not read as no step and no clamped number."""
    with empty.write() as conn:
        migrate(conn, to="0009")
        _fill(conn)
    empty.migrate(assets.migrations())
    with empty.read() as conn:
        row = conn.execute(select(process_windows)).one()
        found = session_views.process(conn, incarnation="life")
    assert (row.steps, row.clamps, row.gpus) == (None, None, None)
    assert found is not None
    assert (found.resident_bytes, found.power_w, found.lengths) == (7, 612.5, ((64, 9),))
    assert (found.steps, found.clamps, found.gpus) == (None, None, None)


def test_the_next_window_of_the_same_process_takes_its_place(empty: Database) -> None:
    with empty.write() as conn:
        migrate(conn, to="0009")
        _fill(conn)
    empty.migrate(assets.migrations())
    clamps = Clamps(num_keys=3, num_values=0)
    told = build.received(build.process_window(seq=5, clamps=clamps), incarnation="life")
    writer = ingest.Writer(fleet="main", worker="worker-1")
    assert ingest.ingest_logs(empty, identity=writer, records=[told], now=START).num_new == 1
    with empty.read() as conn:
        found = session_views.process(conn, incarnation="life")
    assert found is not None
    assert (found.clamps, found.steps, found.power_w) == (clamps, None, None)


def _fill(conn: Connection) -> None:
    put_fleet(conn)
    conn.execute(
        stacks.insert().values(
            digest=build.STACK, parts=dict(build.STACK_PARTS), first_seen_at=START
        )
    )
    conn.execute(
        text(
            "INSERT INTO workers (id, fleet_id, name, hardware, stack, incarnation,"
            " incarnation_since, address, capabilities, reported_generation, effective_generation,"
            " effective_flags, flag_bytes, last_seen_at, is_cordoned, is_quarantined,"
            " is_break_glass, is_lease_lapsed, refused)"
            " VALUES ('worker', 'fleet', 'worker-1', :hardware, :stack, 'life', :at,"
            " '', '{}', 0, 0, '{}', '{}', :at, false, false, false, false, '')"
        ),
        {"stack": build.STACK, "hardware": build.HARDWARE, "at": moment(conn)},
    )
    conn.execute(
        incarnations.insert().values(
            id="life", worker_id="worker", hardware=build.HARDWARE, stack=build.STACK,
            started_at=START, num_records=1, highest_seq=4,
        )
    )  # fmt: skip
    conn.execute(
        text(
            "INSERT INTO process_windows (incarnation, worker_id, seq, received_at,"
            " resident_bytes, flag_bytes, lengths, num_sessions_started, power_w)"
            " VALUES ('life', 'worker', 4, :at, 7, '{}', '[[64, 9]]', 1, 612.5)"
        ),
        {"at": moment(conn)},
    )
