"""What a person may say of variants, what follows from it, and what no word makes good."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.contract import vocabulary
from controlplane.domain.canary import Phase
from controlplane.domain.errors import ConflictError, InvalidValueError, NotFoundError
from controlplane.domain.fleet import Mode
from controlplane.domain.ledger import Standing
from controlplane.services import attestation, desired_states, fleets
from controlplane.services.attestation import Attestation
from controlplane.services.change import Act
from controlplane.store import audit as audit_store
from controlplane.store import desired_states as desired_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.build import FLAG, FLEET, FUSED, PLAIN, STACK, SUBJECT
from tests.clock import START, CountingId
from tests.domain import build as domain

NEXT_PARTS = {"torch": "2.14", "driver": "580.12"}
NEXT = vocabulary.stack_digest(NEXT_PARTS)
WANTED = Attestation(fleet=FLEET, flag=FLAG, variant=FUSED)


def put_all(conn: Connection, *, runs: str = FUSED, **changes: Any) -> None:
    """A fleet of two workers on one stack and one on the next, all of which run `runs`."""
    flag_store.put_catalogue(conn, domain.catalogue())
    build.put_fleet(conn, **changes)
    parts = {"worker-1": build.STACK_PARTS, "worker-2": build.STACK_PARTS, "worker-3": NEXT_PARTS}
    for name, stack in parts.items():
        build.put_worker(conn, name, stack=stack, flags={FLAG: runs})
    desired_states.refresh(conn, fleet=FLEET, now=START)


def act(reason: str = "ran well for seven weeks") -> Act:
    return Act(actor="ada", reason=reason, now=START, new_id=CountingId())


def standing(conn: Connection, *, stack: str = STACK, fleet: str = FLEET) -> Standing | None:
    subject = replace(SUBJECT, stack=stack)
    return qualification_store.standings(conn, fleet=fleet).get(subject)


def told(conn: Connection) -> dict[str, str]:
    """What each worker is wanted to run."""
    stored = desired_store.in_fleet(conn, fleet=FLEET)
    names = {worker.id: worker.name for worker in worker_store.in_fleet(conn, fleet=FLEET)}
    return {names[worker]: state.desired.flags[FLAG] for worker, state in stored.items()}


def actions(conn: Connection) -> list[str]:
    return [row.action for row in audit_store.page(conn)]


def test_a_running_fleet_goes_on_with_what_is_attested_once_it_enforces(
    database: Database,
) -> None:
    """That is what attesting is for: adoption must not slow a fleet down."""
    with database.write() as conn:
        put_all(conn, mode=Mode.OBSERVE)
        change = attestation.attest(conn, WANTED, act=act())
        assert fleet_store.get(conn, FLEET).promoted == {FLAG: FUSED}
        fleets.set_mode(conn, FLEET, Mode.ENFORCE, act=act())
        assert set(told(conn).values()) == {FUSED}
    assert [STACK in one or NEXT in one for one in change.effects[:2]] == [True, True]
    assert "without a canary" in change.effects[0]
    assert "2 of 2 workers that know it run it now" in "".join(change.effects)


def test_without_a_word_an_adopted_fleet_goes_to_its_fallback(database: Database) -> None:
    """The test before would else pass whatever attesting does."""
    with database.write() as conn:
        put_all(conn, mode=Mode.OBSERVE)
        fleets.set_mode(conn, FLEET, Mode.ENFORCE, act=act())
        assert set(told(conn).values()) == {PLAIN}


def test_a_word_is_kept_with_who_said_it_and_why(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, mode=Mode.OBSERVE)
        subject: Any = attestation.attest(conn, WANTED, act=act()).subject
        records = [qualification_store.get(conn, number) for number in subject["numbers"]]
        assert actions(conn)[0] == "qualification.attested"
    assert {one.subject.stack for one in records} == {STACK, NEXT}
    for record in records:
        assert (record.fleet, record.canary, record.basis) == (FLEET, None, None)
        assert (record.actor, record.reason) == ("ada", "ran well for seven weeks")


def test_where_the_fleet_enforces_a_word_promotes_nothing(database: Database) -> None:
    """Pinned to one worker and attested, a variant would else pass by every canary."""
    with database.write() as conn:
        put_all(conn)
        attestation.attest(conn, WANTED, act=act())
        assert fleet_store.get(conn, FLEET).promoted == {}
        desired_states.refresh(conn, fleet=FLEET, now=START)
        assert set(told(conn).values()) == {PLAIN}


def test_a_word_leaves_what_is_promoted_as_it_is(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, mode=Mode.OBSERVE, promoted={FLAG: "fused_all"})
        attestation.attest(conn, WANTED, act=act())
        assert fleet_store.get(conn, FLEET).promoted == {FLAG: "fused_all"}


def test_a_word_counts_in_its_own_fleet_alone(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        build.put_fleet(conn, name="other", promoted={FLAG: FUSED})
        attestation.attest(conn, WANTED, act=act())
        assert standing(conn) is Standing.QUALIFIED
        assert standing(conn, fleet="other") is None


def test_a_word_may_be_of_one_stack(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        attestation.attest(conn, replace(WANTED, stack=NEXT), act=act())
        assert (standing(conn), standing(conn, stack=NEXT)) == (None, Standing.QUALIFIED)


def test_what_is_qualified_already_is_said_and_leaves_no_trace(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        attestation.attest(conn, WANTED, act=act())
        before = actions(conn)
        change = attestation.attest(conn, WANTED, act=act())
        assert change.effects[0].startswith("nothing changes")
        assert actions(conn) == before


def test_what_no_worker_runs_and_nobody_promoted_is_not_attested(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, runs=PLAIN)
        with pytest.raises(ConflictError, match="canary start main fused_allreduce fused_steady"):
            attestation.attest(conn, WANTED, act=act())
        assert standing(conn) is None


def test_no_word_makes_good_what_failed_in_a_canary(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        canary = build.put_canary(conn, phase=Phase.ROLLED_BACK)
        build.put_record(
            conn, standing=Standing.DISQUALIFIED, canary_id=canary.id, reason="floor: 23.1 fps"
        )
        with pytest.raises(ConflictError, match=r"23\.1 fps.*an admin starts"):
            attestation.attest(conn, WANTED, act=act())
        attestation.attest(conn, replace(WANTED, stack=NEXT), act=act())
        assert standing(conn) is Standing.DISQUALIFIED
        assert standing(conn, stack=NEXT) is Standing.QUALIFIED


def test_what_exists_to_be_caught_is_not_attested(database: Database) -> None:
    caught = next(
        variant.name
        for flag in domain.catalogue()
        for variant in flag.variants
        if flag.name == FLAG and variant.is_canary_only
    )
    with database.write() as conn:
        put_all(conn, runs=caught)
        with pytest.raises(ConflictError, match=caught):
            attestation.attest(conn, replace(WANTED, variant=caught), act=act())


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"fleet": "none"}, NotFoundError, FLEET),
        ({"flag": "none"}, NotFoundError, FLAG),
        ({"variant": "none"}, InvalidValueError, FUSED),
        ({"hardware": "none"}, InvalidValueError, build.HARDWARE),
        ({"stack": "none"}, InvalidValueError, STACK),
    ],
)
def test_a_word_that_is_not_there_is_refused_with_those_that_are(
    database: Database, change: dict[str, str], error: type[Exception], said: str
) -> None:
    with database.write() as conn:
        put_all(conn)
        with pytest.raises(error, match=said):
            attestation.attest(conn, replace(WANTED, **change), act=act())


@pytest.mark.parametrize("is_sample", [False, True])
def test_a_fleet_without_workers_has_nothing_to_attest(
    database: Database,
    is_sample: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    with database.write() as conn:
        flag_store.put_catalogue(conn, domain.catalogue())
        mode = Mode.OBSERVE if is_sample else Mode.ENFORCE
        build.put_fleet(conn, is_sample=is_sample, mode=mode)
        with pytest.raises(ConflictError, match="no worker has registered"):
            attestation.attest(conn, WANTED, act=act())


# --- taken back ------------------------------------------------------------


def test_what_is_revoked_is_run_no_longer_anywhere(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={FLAG: FUSED})
        number = build.put_record(conn)
        build.put_record(conn, subject=replace(SUBJECT, stack=NEXT))
        desired_states.refresh(conn, fleet=FLEET, now=START)
        change = attestation.revoke(conn, number, act=act("it was another build"))
        assert told(conn) == {"worker-1": PLAIN, "worker-2": PLAIN, "worker-3": FUSED}
        record = qualification_store.get(conn, number)
        assert actions(conn)[0] == "qualification.revoked"
    assert set(change.woken) == {"id-worker-1", "id-worker-2"}
    assert f"fleet {FLEET}: worker-1: {FLAG} {FUSED} -> {PLAIN}" in change.effects
    assert (record.revoked_by, record.revoked_reason) == ("ada", "it was another build")
    assert record.revoked_at == START


def test_revoking_takes_back_the_older_records_too(database: Database) -> None:
    """Else the variant would run on by what was said before."""
    with database.write() as conn:
        put_all(conn)
        older = build.put_record(conn)
        newest = build.put_record(conn)
        attestation.revoke(conn, newest, act=act())
        assert standing(conn) is None
        assert qualification_store.get(conn, older).revoked_by == "ada"


def test_revoking_a_word_leaves_what_a_canary_proved_and_says_so(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        proven = build.put_record(conn)
        said = build.put_record(conn, fleet=FLEET)
        change = attestation.revoke(conn, said, act=act())
        assert standing(conn) is Standing.QUALIFIED
    assert f"record {proven} still says so" in change.effects[0]


def test_revoking_tells_which_canary_loses_its_controls(database: Database) -> None:
    with database.write() as conn:
        put_all(conn, promoted={FLAG: FUSED})
        number = build.put_record(conn)
        build.put_canary(conn, variant="fused_all", baseline=FUSED)
        change = attestation.revoke(conn, number, act=act())
    assert "fused-allreduce-1 compares with it, and loses its controls" in change.effects


def test_a_disqualification_is_not_revoked(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        canary = build.put_canary(conn, phase=Phase.ROLLED_BACK)
        number = build.put_record(conn, standing=Standing.DISQUALIFIED, canary_id=canary.id)
        with pytest.raises(ConflictError, match="an admin starts"):
            attestation.revoke(conn, number, act=act())
        assert standing(conn) is Standing.DISQUALIFIED


def test_what_is_revoked_already_is_said_and_leaves_no_trace(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        number = build.put_record(conn)
        attestation.revoke(conn, number, act=act("first"))
        before = actions(conn)
        change = attestation.revoke(conn, number, act=act("second"))
        assert change.effects[0].startswith("nothing changes")
        assert actions(conn) == before
        assert qualification_store.get(conn, number).revoked_reason == "first"


def test_an_unknown_record_is_not_found(database: Database) -> None:
    with database.write() as conn:
        put_all(conn)
        with pytest.raises(NotFoundError, match="4711"):
            attestation.revoke(conn, 4711, act=act())
