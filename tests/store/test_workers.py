"""Workers live, die and report; what they say is theirs alone."""

from datetime import timedelta

import pytest

from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.domain.errors import ConflictError, InvalidValueError, NotFoundError
from controlplane.services import ingest
from controlplane.store import sessions as session_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database
from tests import build
from tests.clock import START, FakeClock
from tests.domain import build as domain

_ID = f"id-{build.WORKER}"


def test_a_registered_worker_has_reported_nothing_yet(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        worker = build.put_worker(conn)
        assert worker_store.get(conn, fleet=build.FLEET, name=build.WORKER) == worker
        assert worker_store.in_fleet(conn, fleet=build.FLEET) == (worker,)
    assert (worker.effective_generation, worker.effective_at) == (0, None)
    assert (worker.desired_generation, worker.desired_flags) == (0, {})
    assert worker.stack == build.STACK
    assert worker.capabilities == {build.FLAG: (build.PLAIN, build.FUSED)}


def test_a_missing_worker_is_told_with_those_there_are(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        with pytest.raises(NotFoundError, match=f"there are: {build.WORKER}"):
            worker_store.get(conn, fleet=build.FLEET, name="worker-9")


def test_registering_again_changes_nothing_but_what_is_told(database: Database) -> None:
    """The agent repeats its registration after an outage; that is no new life."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        worker_store.record_effective(conn, worker_id=_ID, report=build.effective(), now=START)
        again = build.put_worker(conn, now=START + timedelta(minutes=1), address="10.0.0.7")
    assert again.address == "10.0.0.7"
    assert again.incarnation_since == START
    assert again.effective_generation == 1


def test_a_new_incarnation_loses_the_sessions_of_the_old(
    database: Database, clock: FakeClock
) -> None:
    """A death leaves a record: without one, the August deaths looked like idle workers."""
    _registered(database)
    records = [build.received(build.started())]
    ingest.ingest_logs(database, identity=build.writer(), records=records, now=clock.now())
    with database.write() as conn:
        assert worker_store.by_id(conn, _ID).num_open_sessions == 1
        reborn = build.put_worker(conn, incarnation="second", now=clock.advance(minutes=1))
        assert reborn.num_open_sessions == 0
        assert reborn.effective_generation == 0
        lost = session_store.live(conn, ["session-1"])["session-1"]
    assert (lost.outcome, lost.reason) == (Outcome.LOST, Reason.PROCESS_LOST)
    assert lost.ended_at == clock.now()


def test_an_incarnation_that_is_over_cannot_come_back(database: Database) -> None:
    """A process that was cut off and replaced must not take its place again."""
    _registered(database)
    with database.write() as conn:
        build.put_worker(conn, incarnation="second")
        with pytest.raises(ConflictError, match="is over"):
            build.put_worker(conn)


def test_an_incarnation_of_another_worker_is_refused(database: Database) -> None:
    _registered(database)
    with database.write() as conn, pytest.raises(ConflictError, match="another worker"):
        build.put_worker(conn, "worker-2", incarnation=f"incarnation-{build.WORKER}")


def test_an_incarnation_keeps_its_stack(database: Database) -> None:
    _registered(database)
    with database.write() as conn, pytest.raises(ConflictError, match="restart the worker"):
        build.put_worker(conn, stack={"torch": "2.14"})


def test_a_change_of_stack_ends_the_pins(database: Database) -> None:
    _registered(database)
    with database.write() as conn:
        pin = domain.pin(build.FUSED)
        worker_store.put_pin(conn, worker_id=_ID, pin=pin, now=START)
        assert build.put_worker(conn, incarnation="same-stack").pins == (pin,)
        assert build.put_worker(conn, incarnation="new", stack={"torch": "2.14"}).pins == ()


def test_a_pin_replaces_one_of_the_same_flag(database: Database) -> None:
    _registered(database)
    with database.write() as conn:
        for variant in (build.FUSED, build.PLAIN):
            worker_store.put_pin(conn, worker_id=_ID, pin=domain.pin(variant), now=START)
        assert worker_store.by_id(conn, _ID).pins == (domain.pin(build.PLAIN),)
        assert worker_store.remove_pin(conn, worker_id=_ID, flag=build.FLAG)
        assert not worker_store.remove_pin(conn, worker_id=_ID, flag=build.FLAG)


def test_an_effective_report_sums_the_bytes_of_its_ranks(database: Database) -> None:
    _registered(database)
    flags = {build.FLAG: build.FUSED}
    ranks = [build.rank(n, flags=flags, flag_bytes={build.FLAG: 100 + n}) for n in (0, 1)]
    report = build.effective(flags=flags, ranks=ranks, generation=4)
    with database.write() as conn:
        assert worker_store.record_effective(conn, worker_id=_ID, report=report, now=START)
        worker = worker_store.by_id(conn, _ID)
    assert worker.flag_bytes == {build.FLAG: 201}
    assert (worker.effective_generation, worker.effective_flags) == (4, flags)


def test_a_late_report_is_not_recorded(database: Database) -> None:
    """A retried request may arrive after the one that followed it."""
    _registered(database)
    newer, older = build.effective(generation=5), build.effective(generation=4)
    other = build.effective(incarnation="gone", generation=9)
    with database.write() as conn:
        assert worker_store.record_effective(conn, worker_id=_ID, report=newer, now=START)
        assert not worker_store.record_effective(conn, worker_id=_ID, report=older, now=START)
        assert not worker_store.record_effective(conn, worker_id=_ID, report=other, now=START)
        assert worker_store.by_id(conn, _ID).effective_generation == 5


def test_a_generation_that_leaves_no_room_is_refused(database: Database) -> None:
    """The next one would not fit its column, and the worker could never be told anything."""
    _registered(database)
    report = build.effective(generation=2**62)
    with database.write() as conn, pytest.raises(InvalidValueError, match="generation"):
        worker_store.record_effective(conn, worker_id=_ID, report=report, now=START)


def test_a_trip_is_recorded_once_and_stays_until_it_is_closed(
    database: Database, clock: FakeClock
) -> None:
    _registered(database)
    trip = build.breaker_trip()
    with database.write() as conn:
        assert worker_store.record_trip(conn, worker_id=_ID, trip=trip, now=clock.now())
        later = clock.advance(minutes=5)
        assert not worker_store.record_trip(conn, worker_id=_ID, trip=trip, now=later)
        reborn = build.put_worker(conn, incarnation="second", now=later)
        assert reborn.trip is not None
        assert (reborn.trip.at, reborn.trip.reason) == (START, Reason.OUT_OF_MEMORY)
        assert worker_store.close_trip(conn, worker_id=_ID, reason="looked at", now=later)
        assert worker_store.by_id(conn, _ID).trip is None
        assert not worker_store.close_trip(conn, worker_id=_ID, reason="again", now=later)


def test_a_trip_of_an_unknown_incarnation_is_refused(database: Database) -> None:
    _registered(database)
    trip = build.breaker_trip(incarnation="nobody")
    with database.write() as conn, pytest.raises(ConflictError, match="register first"):
        worker_store.record_trip(conn, worker_id=_ID, trip=trip, now=START)


def test_a_worker_is_taken_out_of_service_and_back(database: Database) -> None:
    _registered(database)
    with database.write() as conn:
        worker_store.set_cordoned(conn, worker_id=_ID, is_cordoned=True)
        worker_store.set_quarantined(conn, worker_id=_ID, is_quarantined=True)
        worker = worker_store.by_id(conn, _ID)
        assert (worker.is_cordoned, worker.is_quarantined) == (True, True)
        with pytest.raises(NotFoundError):
            worker_store.set_cordoned(conn, worker_id="nobody", is_cordoned=True)


def _registered(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
