"""What whole lives of canaries leave on record, with the real reconcilers and store."""

import pytest

from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError
from controlplane.domain.ledger import Record, Standing
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database
from tests.simulation.fleet_of import FLEET, Fleet, adopted

FLAG = "fused_allreduce"
SLOW = "fused_small_tiles"
GOOD = "fused_steady"


def records(fleet: Fleet, variant: str) -> tuple[Record, ...]:
    """What is on record of `variant`, newest first."""
    with fleet.database.read() as conn:
        worker = worker_store.in_fleet(conn, fleet=FLEET)[0]
        subject = Qualification(
            flag=FLAG, variant=variant, hardware=worker.hardware, stack=worker.stack
        )
        return qualification_store.of_subject(conn, subject)


def again(fleet: Fleet, variant: str, *, policy: str = "demo") -> str:
    """Start as an admin does."""
    with fleet.database.write() as conn:
        wanted = canaries.Wanted(
            fleet=FLEET, flag=FLAG, variant=variant, policy=policy, may_repeat=True
        )
        change = canaries.start(conn, wanted, act=fleet.act("another build"))
    return str(change.subject["name"])


def test_a_promoted_variant_is_on_record_with_its_evidence(database: Database) -> None:
    fleet = adopted(database, seed=21)
    name = fleet.start(GOOD)
    canary = fleet.run_to(name, *TERMINAL)
    (record,) = records(fleet, GOOD)

    assert canary.phase is Phase.PROMOTED
    assert (record.standing, record.canary) == (Standing.QUALIFIED, name)
    with fleet.database.read() as conn:
        decision = history.decisions_of(conn, canary_id=canary.id, limit=1)[0]
    assert (record.decision, record.evidence_digest) == (decision.id, decision.digest)
    assert record.reason == canary.reason


def test_a_variant_that_failed_is_on_record_and_each_attempt_is_numbered(
    database: Database,
) -> None:
    fleet = adopted(database, seed=22)
    name = fleet.start(SLOW)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    (record,) = records(fleet, SLOW)
    assert (record.standing, record.canary) == (Standing.DISQUALIFIED, name)
    assert record.decision is not None
    assert record.evidence_digest is not None
    with pytest.raises(ConflictError, match=name):
        fleet.start(SLOW)

    second = again(fleet, SLOW)

    assert fleet.canary(second).attempt == 2
    assert fleet.run_to(second, *TERMINAL).phase is Phase.ROLLED_BACK
    assert [one.canary for one in records(fleet, SLOW)] == [second, name]
    assert fleet.canary(again(fleet, SLOW)).attempt == 3


def test_a_variant_that_fails_in_preflight_is_on_record(database: Database) -> None:
    """No viewer has met it, and it is known to be bad all the same."""
    fleet = adopted(database, seed=23)
    name = fleet.start("fused_all", policy="preflight")
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert "gate_failed" in fleet.events(name)
    (record,) = records(fleet, "fused_all")
    assert record.standing is Standing.DISQUALIFIED


def test_an_abort_leaves_nothing_on_record(database: Database) -> None:
    fleet = adopted(database, seed=24)
    name = fleet.start(GOOD)
    fleet.run_to(name, Phase.PROGRESSING)
    with fleet.database.write() as conn:
        canaries.ask(conn, name, RequestKind.ABORT, act=fleet.act("seen enough"))
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert records(fleet, GOOD) == ()
    fleet.start(GOOD)  # anybody may start it again


@pytest.mark.parametrize("variant", [GOOD, SLOW])
def test_the_record_comes_with_the_last_transition_whenever_the_controller_dies(
    sqlite_database: Database, variant: str
) -> None:
    """In one transaction: else a variant would count as untried after a crash between the two."""
    fleet = adopted(sqlite_database, seed=26, crashes=lambda num: num % 3 == 0 and num < 150)
    name = fleet.start(variant)

    def is_over() -> bool:
        is_terminal = fleet.canary(name).phase in TERMINAL
        assert len(records(fleet, variant)) == is_terminal
        return is_terminal

    fleet.world.run_until(is_over, within_s=3000)
    fleet.world.run(seconds=5)
    assert is_over()
    assert fleet.world.num_crashes > 0


def test_a_process_that_ran_what_failed_is_known_until_it_is_replaced(database: Database) -> None:
    fleet = adopted(database, seed=25)
    name = fleet.start(SLOW)
    canary = fleet.run_to(name, *TERMINAL)
    with fleet.database.read() as conn:
        exposed = canary_store.exposed(conn, canary_id=canary.id)
        tainted = qualification_store.tainted_incarnations(conn, fleet=FLEET, flag=FLAG)
    assert tainted == {one.incarnation for one in exposed}
    assert tainted

    for one in exposed:
        fleet.world.workers[one.worker].kill(restart_after_s=1)
    fleet.world.run(seconds=30)

    with fleet.database.read() as conn:
        present = {one.incarnation for one in worker_store.in_fleet(conn, fleet=FLEET)}
        assert not present & qualification_store.tainted_incarnations(conn, fleet=FLEET, flag=FLAG)
