"""The ledger keeps every record, and tells how a variant stands in a fleet."""

import threading
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from controlplane.domain.canary import TRANSITIONS, Event, Phase
from controlplane.domain.errors import NotFoundError
from controlplane.domain.ledger import Basis, Standing
from controlplane.domain.verdict import Verdict
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store.qualifications import Revocation
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.build import FLEET, SUBJECT
from tests.clock import START

OTHER = replace(SUBJECT, stack="0123456789abcdef")
BY = Revocation(actor="grace", reason="the wrong build", now=START)
FAILED = Standing.DISQUALIFIED
GOOD = Standing.QUALIFIED


def standing(conn: Connection, fleet: str = FLEET) -> Standing | None:
    return qualification_store.standings(conn, fleet=fleet).get(SUBJECT)


def put_failure(conn: Connection, number: int = 1, **changes: Any) -> int:
    canary = build.put_canary(
        conn, id=f"canary-{number}", name=f"fused-allreduce-{number}", phase=Phase.ROLLED_BACK
    )
    return build.put_record(conn, standing=FAILED, canary_id=canary.id, **changes)


def test_a_record_is_read_as_it_was_written(database: Database) -> None:
    basis = Basis(num_rated=20, num_slow=3, num_sessions=25, num_failed=1)
    with database.write() as conn:
        build.put_fleet(conn)
        canary = build.put_canary(conn, phase=Phase.PROMOTED)
        history.append_decision(
            conn,
            id="decision-1",
            canary_id=canary.id,
            verdict=Verdict.PASSING,
            gates=[],
            inputs={},
            digest="e" * 64,
            now=START,
        )
        number = build.put_record(
            conn, canary_id=canary.id, decision_id="decision-1", basis=basis, reason="it passed"
        )
        found = qualification_store.get(conn, number)
        assert (found.subject, found.standing, found.basis) == (SUBJECT, GOOD, basis)
        assert (found.canary, found.decision) == (canary.name, "decision-1")
        assert found.evidence_digest == "e" * 64
        assert (found.actor, found.reason, found.created_at) == ("ada", "it passed", START)
        assert (found.fleet, found.revoked_at, found.revoked_by) == (None, None, None)
        with pytest.raises(NotFoundError, match=str(number + 1)):
            qualification_store.get(conn, number + 1)


def test_a_new_record_erases_none(database: Database) -> None:
    """What was once believed, and why, is what a review after an incident asks."""
    with database.write() as conn:
        build.put_fleet(conn)
        first = build.put_record(conn, reason="first")
        assert qualification_store.revoke(conn, SUBJECT, fleet=None, by=BY) == 1
        second = put_failure(conn, reason="second")
        third = build.put_record(conn, reason="third")
        found = qualification_store.of_subject(conn, SUBJECT)
        assert [one.number for one in found] == [third, second, first]
        assert [one.reason for one in found] == ["third", "second", "first"]
        assert found[-1].revoked_by == "grace"
        assert found[-1].revoked_reason == "the wrong build"
        assert qualification_store.of_subject(conn, OTHER) == ()


def test_the_newest_that_is_not_revoked_says_how_it_stands(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        assert standing(conn) is None
        build.put_record(conn)
        assert standing(conn) is GOOD
        put_failure(conn)
        assert standing(conn) is FAILED
        build.put_record(conn)
        assert standing(conn) is GOOD
        # Taken back by a person, it is what it was before: failed, and not unknown.
        assert qualification_store.revoke(conn, SUBJECT, fleet=None, by=BY) == 2
        assert standing(conn) is FAILED


def test_an_attestation_counts_in_its_fleet_alone(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_fleet(conn, name="other")
        build.put_record(conn, fleet=FLEET)
        assert (standing(conn), standing(conn, "other")) == (GOOD, None)
        build.put_record(conn)
        assert qualification_store.revoke(conn, SUBJECT, fleet=FLEET, by=BY) == 1
        assert (standing(conn), standing(conn, "other")) == (GOOD, GOOD)


def test_a_revocation_is_of_one_variant_on_one_hardware_and_stack(database: Database) -> None:
    changes = ({"variant": "fused_all"}, {"hardware": "b200x3"}, {"stack": "0" * 16})
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_record(conn)
        for change in changes:
            build.put_record(conn, subject=replace(SUBJECT, **change))
        assert qualification_store.revoke(conn, SUBJECT, fleet=None, by=BY) == 1
        assert qualification_store.revoke(conn, SUBJECT, fleet=None, by=BY) == 0
        left = set(qualification_store.standings(conn, fleet=FLEET))
        assert left == {replace(SUBJECT, **change) for change in changes}


def test_a_person_disqualifies_nothing(database: Database) -> None:
    """The database itself refuses it."""
    with database.write() as conn:
        build.put_fleet(conn)
    with pytest.raises(IntegrityError), database.write() as conn:
        build.put_record(conn, standing=FAILED)


def test_a_list_has_what_counts_now_in_pages(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_fleet(conn, name="other")
        build.put_record(conn)
        newest = build.put_record(conn)
        own = build.put_record(conn, fleet=FLEET)
        others = build.put_record(conn, fleet="other")
        revoked = build.put_record(conn, subject=OTHER)
        qualification_store.revoke(conn, OTHER, fleet=None, by=BY)
        numbers: list[int] = []
        while page := qualification_store.list_page(
            conn, fleet=None, after=numbers[-1] if numbers else None, limit=2
        ):
            numbers += [one.number for one in page]
    assert numbers == [others, own, newest]
    assert revoked not in numbers


def test_a_list_of_a_fleet_has_what_its_workers_run_on(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_fleet(conn, name="other")
        build.put_worker(conn)
        shared = build.put_record(conn)
        build.put_record(conn, fleet="other")
        build.put_record(conn, subject=OTHER)  # on a stack that none of its workers has
        found = qualification_store.list_page(conn, fleet=FLEET, after=None, limit=10)
        assert [one.number for one in found] == [shared]
        assert qualification_store.list_page(conn, fleet="other", after=None, limit=10) == ()
        with pytest.raises(NotFoundError):
            qualification_store.list_page(conn, fleet="none", after=None, limit=10)


def test_a_canary_that_failed_while_a_person_attests_is_not_overlooked(database: Database) -> None:
    """Both look before they write: without a lock the word would come after the failure, unseen."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_canary(conn, phase=Phase.ROLLED_BACK)
    is_locked, seen = threading.Event(), []

    def attest() -> None:
        assert is_locked.wait(timeout=30)
        with database.write() as conn:
            qualification_store.lock(conn)
            seen.append(standing(conn))

    person = threading.Thread(target=attest)
    person.start()
    with database.write() as conn:
        qualification_store.lock(conn)
        is_locked.set()
        build.put_record(conn, standing=FAILED, canary_id="canary-1")
    person.join(timeout=30)
    assert seen == [FAILED]


# --- processes that ran what failed -----------------------------------------------------------


def put_exposed(conn: Connection, event: Event | None, phase: Phase, **changes: Any) -> None:
    """A canary that exposed worker-1, and was sent back by `event`."""
    canary = build.put_canary(conn, phase=phase, **changes)
    canary_store.expose(
        conn,
        canary_id=canary.id,
        worker_id="id-worker-1",
        incarnation="incarnation-worker-1",
        flag_bytes=0,
        now=START,
    )
    if event is not None:
        build.put_way_back(conn, canary, event)


def tainted(conn: Connection, *, fleet: str = FLEET, flag: str = build.FLAG) -> frozenset[str]:
    return qualification_store.tainted_incarnations(conn, fleet=fleet, flag=flag)


SENDING_BACK = [
    event
    for (phase, event), to in TRANSITIONS.items()
    if to is Phase.ROLLING_BACK and phase is Phase.PROGRESSING
]


@pytest.mark.parametrize("event", SENDING_BACK)
@pytest.mark.parametrize("phase", [Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK])
def test_a_process_that_ran_what_failed_is_tainted_from_the_way_back_on(
    database: Database, event: Event, phase: Phase
) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        build.put_worker(conn, "worker-2")
        put_exposed(conn, event, phase)
        is_failed = event in (Event.GATE_FAILED, Event.HARD_STOPPED)
        assert tainted(conn) == ({"incarnation-worker-1"} if is_failed else set())


def test_an_aborted_canary_taints_once_another_finds_the_variant_bad(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        put_exposed(conn, Event.ABORT_REQUESTED, Phase.ROLLED_BACK)
        assert tainted(conn) == set()
        put_failure(conn, 2)
        assert tainted(conn) == {"incarnation-worker-1"}


def test_a_new_life_of_the_worker_is_clean(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        put_exposed(conn, Event.GATE_FAILED, Phase.ROLLED_BACK)
        worker = build.put_worker(conn, incarnation="another-life")
        assert worker.incarnation not in tainted(conn)


def test_one_flag_of_one_fleet_taints_no_other(database: Database) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_fleet(conn, name="other")
        build.put_worker(conn)
        put_exposed(conn, Event.GATE_FAILED, Phase.ROLLED_BACK)
        assert tainted(conn, fleet="other") == set()
        assert tainted(conn, flag="kv_cache") == set()


@pytest.mark.parametrize("phase", [Phase.PROGRESSING, Phase.HELD, Phase.PROMOTED])
def test_another_attempt_does_not_taint_those_that_it_exposes(
    database: Database, phase: Phase
) -> None:
    """Else it could never be compared with anything."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        put_failure(conn, 2)
        put_exposed(conn, None, phase)
        assert tainted(conn) == set()
