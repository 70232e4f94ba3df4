"""What canaries leave on record, and what a worker on another stack runs because of it."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract import vocabulary
from controlplane.domain.blocks import FAILED_SESSIONS, SLOW, Block
from controlplane.domain.canary import Canary, Event, Phase
from controlplane.domain.eprocess import Table
from controlplane.domain.fleet import Mode
from controlplane.domain.ledger import Basis, DisqualifiedError, Standing
from controlplane.domain.verdict import Verdict
from controlplane.services import attestation, canaries, ledger, workers
from controlplane.services.attestation import Attestation
from controlplane.services.change import Act
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import history
from controlplane.store import policies as policy_store
from controlplane.store import qualifications as qualification_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.build import FLAG, FLEET, FUSED, PLAIN, SUBJECT
from tests.clock import START, CountingId
from tests.domain import build as domain

NEXT_PARTS = {"torch": "2.14", "driver": "580.12"}
NAMES = ("worker-1", "worker-2", "worker-3")


def put_all(conn: Connection, **changes: Any) -> None:
    """A fleet with the fused variant promoted, whose workers run what they are told."""
    flag_store.put_catalogue(conn, domain.catalogue())
    build.put_fleet(conn, **{"promoted": {FLAG: FUSED}, **changes})
    for name in NAMES:
        join(conn, name)


def join(conn: Connection, name: str, **changes: Any) -> dict[str, str]:
    """Register as a worker does, and say that all ranks run it. Returns what it was told."""
    registration = build.registration(worker=name, **changes)
    state, _ = workers.register(conn, registration, now=START, new_id=lambda: f"id-{name}")
    report = build.effective(
        incarnation=registration.incarnation, generation=state.generation, flags=dict(state.flags)
    )
    workers.take_effective(conn, FLEET, name, report=report, now=START)
    return dict(state.flags)


def reason(conn: Connection, name: str) -> str:
    explained: Any = workers.explain(conn, FLEET, name, now=START)["reasons"]
    return str(explained[0]["reason"])


def act(why: str = "a test") -> Act:
    return Act(actor="ada", reason=why, now=START, new_id=CountingId())


def put_canary(conn: Connection, number: int = 1, **changes: Any) -> Canary:
    named = {"id": f"canary-{number}", "name": f"fused-allreduce-{number}"}
    return build.put_canary(conn, **{**named, **changes})


def sent_back(conn: Connection, event: Event, number: int = 1, **changes: Any) -> Canary:
    """A canary that `event` sent back, with the decision that it was on."""
    canary = put_canary(conn, number, phase=Phase.ROLLED_BACK, **changes)
    put_decision(conn, canary)
    build.put_way_back(conn, canary, event, decision_id=f"decision-of-{canary.id}")
    return canary


def put_decision(conn: Connection, canary: Canary) -> None:
    history.append_decision(
        conn,
        id=f"decision-of-{canary.id}",
        canary_id=canary.id,
        verdict=Verdict.PASSING,
        gates=[],
        inputs={},
        digest="e" * 64,
        now=START,
    )


def put_block(conn: Connection, canary: Canary) -> None:
    block = Block(
        index=0,
        opened_at=START,
        closed_at=START + timedelta(minutes=1),
        arms={},
        tables={SLOW: (Table(3, 20, 9, 20),), FAILED_SESSIONS: (Table(1, 25, 5, 25),)},
        sessions=(),
    )
    history.append_block(conn, canary_id=canary.id, block=block)


def standing(conn: Connection, fleet: str = FLEET) -> Standing | None:
    return qualification_store.standings(conn, fleet=fleet).get(SUBJECT)


# --- canaries ------------------------------------------------------------


def test_a_promoted_canary_leaves_what_it_rests_on(database: Database) -> None:
    """The rates are what the next canary is held against."""
    with database.write() as conn:
        put_all(conn)
        canary = put_canary(conn, phase=Phase.PROMOTED, reason="every gate passes")
        put_decision(conn, canary)
        put_block(conn, canary)
        assert ledger.qualify(conn, canary, actor="steadyframe", now=START)
        (record,) = qualification_store.of_subject(conn, SUBJECT)
    assert (record.standing, record.canary) == (Standing.QUALIFIED, canary.name)
    assert (record.decision, record.evidence_digest) == (f"decision-of-{canary.id}", "e" * 64)
    assert record.basis == Basis(num_rated=20, num_slow=3, num_sessions=25, num_failed=1)
    assert (record.fleet, record.reason) == (None, "every gate passes")


@pytest.mark.parametrize("event", [Event.GATE_FAILED, Event.HARD_STOPPED])
def test_a_canary_that_failed_disqualifies_and_takes_back_what_qualified(
    database: Database, event: Event
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_fleet(conn, name="other")
        everywhere = build.put_record(conn)
        there = build.put_record(conn, fleet="other")
        canary = sent_back(conn, event)
        put_block(conn, canary)
        assert ledger.disqualify(conn, canary, now=START)
        failed, *before = qualification_store.of_subject(conn, SUBJECT)
        assert (standing(conn), standing(conn, "other")) == (Standing.DISQUALIFIED,) * 2
        actions = [row.action for row in audit_store.page(conn, after=None, limit=10)]
    assert (failed.canary, failed.reason) == (canary.name, "a test")
    assert failed.decision == f"decision-of-{canary.id}"
    assert failed.basis is not None
    assert failed.basis.num_slow == 3
    assert {one.number for one in before} == {everywhere, there}
    assert all(one.revoked_reason == f"disqualified by {canary.name}" for one in before)
    assert "qualification.disqualified" in actions


@pytest.mark.parametrize("event", [Event.ABORT_REQUESTED, Event.CONTROL_LOST])
def test_an_abort_or_a_lost_control_says_nothing_of_the_variant(
    database: Database, event: Event
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_record(conn)
        assert not ledger.disqualify(conn, sent_back(conn, event), now=START)
        assert standing(conn) is Standing.QUALIFIED
        assert len(qualification_store.of_subject(conn, SUBJECT)) == 1


def test_a_canary_that_passes_after_another_failed_elsewhere_proves_nothing(
    database: Database,
) -> None:
    """It was judged as a first attempt, and is none any more."""
    with database.write() as conn:
        put_all(conn, promoted={})
        ledger.disqualify(conn, sent_back(conn, Event.GATE_FAILED, 1), now=START)
        passed = put_canary(conn, 2, phase=Phase.PROMOTED)
        assert not ledger.qualify(conn, passed, actor="steadyframe", now=START)
        assert standing(conn) is Standing.DISQUALIFIED
        newest = qualification_store.of_subject(conn, SUBJECT)[0]
        assert "began before fused-allreduce-1 failed" in str(newest.revoked_reason)


def test_another_attempt_that_passes_makes_good_what_failed(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={})
        ledger.disqualify(conn, sent_back(conn, Event.GATE_FAILED, 1), now=START)
        again = put_canary(conn, 2, phase=Phase.PROMOTED, attempt=2)
        assert ledger.qualify(conn, again, actor="steadyframe", now=START)
        assert standing(conn) is Standing.QUALIFIED


# --- starting again ------------------------------------------------------------


def start(conn: Connection, **changes: Any) -> Canary:
    policy_store.put(conn, domain.policy(), now=START)
    wanted = canaries.Wanted(fleet=FLEET, flag=FLAG, variant=FUSED, policy="test", **changes)
    subject: Any = canaries.start(conn, wanted, act=act("another build")).subject
    return canary_store.get(conn, name_or_id=subject["name"])


def test_a_first_canary_is_attempt_one(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={})
        assert start(conn).attempt == 1


def test_what_failed_is_tried_again_only_by_who_may_and_is_numbered(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={})
        for number in (1, 2):
            failed = sent_back(conn, Event.GATE_FAILED, number)
            ledger.disqualify(conn, failed, now=START)
        with pytest.raises(DisqualifiedError, match="only an admin"):
            start(conn)
        again = start(conn, may_repeat=True)
        assert (again.attempt, again.baseline) == (3, PLAIN)


def test_what_failed_on_another_stack_or_hardware_is_no_hindrance(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={})
        for number, change in enumerate(({"stack": "0" * 16}, {"hardware": "b200x3"}), start=1):
            failed = sent_back(conn, Event.GATE_FAILED, number, **change)
            ledger.disqualify(conn, failed, now=START)
        assert start(conn).attempt == 1


@pytest.mark.parametrize("is_failed", [False, True])
def test_only_what_is_qualified_is_a_baseline(database: Database, is_failed: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with database.write() as conn:
        put_all(conn)
        build.put_record(conn)
        if is_failed:
            ledger.disqualify(conn, sent_back(conn, Event.GATE_FAILED), now=START)
        for name in NAMES:
            join(conn, name)
        wanted = canaries.Wanted(fleet=FLEET, flag=FLAG, variant="fused_all", policy="test")
        policy_store.put(conn, domain.policy(), now=START)
        for name in NAMES:
            known = {FLAG: [PLAIN, FUSED, "fused_all"]}
            join(conn, name, incarnation=f"next-{name}", capabilities=known)
        subject: Any = canaries.start(conn, wanted, act=act()).subject
        assert subject["baseline"] == (PLAIN if is_failed else FUSED)


# --- another stack ------------------------------------------------------------


def test_a_worker_on_a_stack_that_nobody_proved_goes_to_its_fallback_and_says_why(
    database: Database,
) -> None:
    """A PyTorch and NCCL upgrade is how the kernel that ran for weeks began to kill its workers."""
    with database.write() as conn:
        put_all(conn)
        build.put_record(conn)
        assert join(conn, "worker-1") == {FLAG: FUSED}
        told = join(conn, "worker-1", incarnation="upgraded", stack=NEXT_PARTS)
        assert told == {FLAG: PLAIN}
        why = reason(conn, "worker-1")
        assert "not qualified on stack" in why
        assert vocabulary.stack_digest(NEXT_PARTS) in why
        # Those that were not upgraded go on.
        assert join(conn, "worker-2") == {FLAG: FUSED}


@pytest.mark.parametrize("by", ["canary", "attestation"])
def test_it_comes_back_when_its_stack_is_proven_or_attested(database: Database, by: str) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_record(conn)
        for name in NAMES:
            join(conn, name)
        join(conn, "worker-1", incarnation="upgraded", stack=NEXT_PARTS)
        digest = vocabulary.stack_digest(NEXT_PARTS)
        if by == "canary":
            canary = put_canary(conn, phase=Phase.PROMOTED, stack=digest)
            ledger.qualify(conn, canary, actor="steadyframe", now=START)
        else:
            wanted = Attestation(fleet=FLEET, flag=FLAG, variant=FUSED, stack=digest)
            change = attestation.attest(conn, wanted, act=act())
            assert change.woken == ("id-worker-1",)
        assert join(conn, "worker-1", incarnation="upgraded", stack=NEXT_PARTS) == {FLAG: FUSED}
        assert "promoted" in reason(conn, "worker-1")


def test_a_promoted_variant_that_fails_elsewhere_goes_to_the_fallback_and_says_why(
    database: Database,
) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_record(conn)
        assert join(conn, "worker-1") == {FLAG: FUSED}
        ledger.disqualify(conn, sent_back(conn, Event.HARD_STOPPED), now=START)
        assert join(conn, "worker-1", incarnation="another") == {FLAG: PLAIN}
        assert "disqualified on stack" in reason(conn, "worker-1")


def test_a_fleet_that_observes_is_left_as_it_is_on_any_stack(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        fleet = fleet_store.get(conn, FLEET)
        fleet_store.save(conn, replace(fleet, mode=Mode.OBSERVE))
        told = join(conn, "worker-1", incarnation="next", stack=NEXT_PARTS, flags={FLAG: FUSED})
        assert told == {FLAG: FUSED}


def test_who_looks_and_gives_up_and_looks_again_is_at_a_later_attempt(database: Database) -> None:
    """Twenty tries at 5 % each promote a worse variant in most cases if each is a first one."""
    with database.write() as conn:
        put_all(conn, promoted={})
        for number in (1, 2):
            put_block(conn, put_canary(conn, number, phase=Phase.ROLLED_BACK))
        put_canary(conn, 3, phase=Phase.ROLLED_BACK)  # ended before anything was compared
        assert start(conn).attempt == 3
