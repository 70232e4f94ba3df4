"""Two transactions that touch the same rows wait for each other, and neither undoes the other."""

import threading
from collections.abc import Callable
from dataclasses import replace

import psycopg
from sqlalchemy import select

from controlplane.contract.vocabulary import Outcome
from controlplane.services import ingest
from controlplane.store import desired_states as desired_store
from controlplane.store import dialect, receipts
from controlplane.store import sessions as session_store
from controlplane.store import workers as worker_store
from controlplane.store.evidence_tables import sessions
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START

_INCARNATION = f"incarnation-{build.WORKER}"
_ID = f"id-{build.WORKER}"
# Long enough for the other thread to reach the row it must wait for; too short would pass as well.
_MEANWHILE_S = 0.3


def test_an_end_that_is_being_taken_in_is_not_lost_as_well(database: Database) -> None:
    """Both would close the session, and from then on every batch that names it would fail."""
    _stand(database)
    told = [build.received(build.started())]
    ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
    num_lost: list[int] = []

    def give_up() -> None:
        with database.write() as conn:
            num_lost.append(session_store.close_lost(conn, incarnation=_INCARNATION, now=START))

    def end(conn: Connection) -> None:
        live = session_store.live(conn, ["session-1"])["session-1"]
        after = replace(live, outcome=Outcome.COMPLETED, ended_at=START)
        session_store.put(conn, [after], ended={"session-1": ()})

    _overlapping(database, first=end, second=give_up)
    assert num_lost == [0]
    with database.read() as conn:
        assert conn.scalars(select(sessions.c.outcome)).all() == [Outcome.COMPLETED]


def test_two_writers_never_give_a_worker_the_same_generation(database: Database) -> None:
    _stand(database)

    def want_as_well() -> None:
        with database.write() as conn:
            _want(conn, generation=desired_store.next_generation(conn, worker_id=_ID))

    thread = threading.Thread(target=want_as_well)
    with database.write() as conn:
        generation = desired_store.next_generation(conn, worker_id=_ID)
        thread.start()
        thread.join(timeout=_MEANWHILE_S)
        _want(conn, generation=generation)
    thread.join(timeout=30)
    with database.read() as conn:
        assert worker_store.by_id(conn, _ID).desired_generation == 2


def test_the_same_batch_sent_twice_at_a_time_counts_once(database: Database) -> None:
    """A sender that gave up waiting repeats its batch while the first is still being written."""
    _stand(database)
    told = [build.received(build.started()), build.received(build.ended())]
    results: list[ingest.IngestResult] = []

    def send() -> None:
        results.append(
            ingest.ingest_logs(database, identity=build.writer(), records=told, now=START)
        )

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert sorted(result.num_new for result in results) == [0, 0, 2]
    with database.read() as conn:
        assert len(conn.execute(select(sessions)).all()) == 1


def test_other_processes_are_told_when_the_transaction_commits(postgresql_url: str) -> None:
    database = Database.open(postgresql_url)
    conninfo = postgresql_url.replace("+psycopg", "")
    with psycopg.connect(conninfo, autocommit=True) as listener:
        listener.execute(f"LISTEN {dialect.CHANNEL}")
        with database.write() as conn:
            dialect.notify(conn, ["worker:1", "canaries"])
            assert list(listener.notifies(timeout=0.1)) == []
        told = [one.payload for one in listener.notifies(timeout=10, stop_after=2)]
    assert told == ["worker:1", "canaries"]
    database.close()


def _overlapping(
    database: Database, *, first: Callable[[Connection], None], second: Callable[[], None]
) -> None:
    """Run `first` in a transaction that holds the worker while `second` begins."""
    thread = threading.Thread(target=second)
    with database.write() as conn:
        named = [_INCARNATION]
        receipts.locked_lives(conn, fleet=build.FLEET, worker=build.WORKER, named=named)
        thread.start()
        thread.join(timeout=_MEANWHILE_S)
        first(conn)
    thread.join(timeout=30)
    assert not thread.is_alive(), "it waits for ever"


def _want(conn: Connection, *, generation: int) -> None:
    desired = build.desired(generation)
    desired_store.put(conn, worker_id=_ID, desired=desired, canary_id=None, now=START)


def _stand(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
