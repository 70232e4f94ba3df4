"""What is forgotten and when: repeats after two days, never a session that still runs."""

from datetime import timedelta

from controlplane.reconcilers.retention import EVERY, RetentionReconciler
from controlplane.services import ingest
from controlplane.store import leader as leader_store
from controlplane.store import sessions as session_store
from controlplane.store.transaction import Database
from tests import build
from tests.clock import FakeClock


def carry_out(database: Database, reconciler: RetentionReconciler, clock: FakeClock) -> int:
    with database.write() as conn:
        epoch = leader_store.acquire(conn, holder="a", now=clock.now(), ttl=timedelta(days=9))
    assert epoch is not None
    num_beats = 0
    for beat in reconciler.beats(clock.now(), epoch=epoch):
        beat()
        num_beats += 1
    return num_beats


def test_ended_sessions_leave_the_live_ones_after_two_days_and_running_ones_do_not(
    database: Database, clock: FakeClock
) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
    records = [
        build.received(build.started("ended", seq=1)),
        build.received(build.ended("ended", seq=2)),
        build.received(build.started("running", seq=3)),
    ]
    ingest.ingest_logs(database, identity=build.writer(), records=records, now=clock.now())
    reconciler = RetentionReconciler(database)
    clock.advance(hours=47)
    carry_out(database, reconciler, clock)
    assert live(database) == {"ended", "running"}
    clock.advance(hours=2)
    carry_out(database, reconciler, clock)
    assert live(database) == {"running"}


def test_it_looks_once_an_hour(sqlite_database: Database, clock: FakeClock) -> None:
    reconciler = RetentionReconciler(sqlite_database)
    assert carry_out(sqlite_database, reconciler, clock) == 1
    clock.advance(minutes=59)
    assert carry_out(sqlite_database, reconciler, clock) == 0
    clock.advance(seconds=EVERY.total_seconds())
    assert carry_out(sqlite_database, reconciler, clock) == 1


def live(database: Database) -> set[str]:
    with database.read() as conn:
        return set(session_store.live(conn, ["ended", "running"]))
