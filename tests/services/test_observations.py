"""What is on record of the baseline is what `slow_rate` expects where no rate is stated."""

from dataclasses import replace
from typing import Any

import pytest

from controlplane.domain import compared_gates
from controlplane.domain.ledger import Basis, Standing
from controlplane.domain.verdict import GateResult, Verdict
from controlplane.services import flags, observations
from controlplane.store import canaries as canary_store
from controlplane.store import history
from controlplane.store import policies as policy_store
from controlplane.store import qualifications as qualification_store
from controlplane.store.qualifications import Revocation
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START
from tests.domain import build as domain
from tests.domain.test_compared_gates import STEP, block

FRESHNESS = {"gate": "freshness", "metric": "record_age", "at_most": "15s"}
RATE = {"gate": "slow_rate", "metric": "slow_rate"}
BASELINE = replace(build.SUBJECT, variant=build.PLAIN)
BASIS = Basis(num_rated=200, num_slow=3, num_sessions=200, num_failed=0)


def stand(conn: Connection) -> None:
    """A canary with one block of evidence, whose policy asks for no certain rate."""
    flags.load(conn, (domain.POLICIES / "flags.yaml").read_text())
    policy = domain.policy(gates=[FRESHNESS, RATE], steps=[STEP])
    policy_store.put(conn, policy, now=START)
    build.put_fleet(conn)
    build.put_worker(conn)
    canary = build.put_canary(conn, policy_digest=policy.digest)
    history.append_block(conn, canary_id=canary.id, block=block(0, (0, 0)))


def record(conn: Connection, **changes: Any) -> int:
    return build.put_record(conn, **{"subject": BASELINE, "basis": BASIS, **changes})


def asked(conn: Connection) -> GateResult:
    """What the gate says of all that is known."""
    canary = canary_store.get(conn, name_or_id="canary-1")
    case = observations.observe(conn, canary, tick=domain.seconds(1)).case
    assert case.policy.gates.slow_rate is not None
    return compared_gates.slow_rate(case.policy.gates.slow_rate, case)


def test_the_rate_of_the_baselines_own_record_is_expected(database: Database) -> None:
    with database.write() as conn:
        stand(conn)
        assert asked(conn).verdict is Verdict.UNMEASURED
        record(conn)
        judged = asked(conn)
        assert judged.verdict is Verdict.PASSING
        assert "1.5% expected" in judged.reason
        record(conn, basis=replace(BASIS, num_slow=20))
        assert "10% expected" in asked(conn).reason


@pytest.mark.parametrize(
    "changes",
    [
        {"basis": None},
        {"basis": replace(BASIS, num_rated=0, num_slow=0)},
        {"subject": build.SUBJECT},
        {"subject": replace(BASELINE, stack="0" * 16)},
        {"subject": replace(BASELINE, hardware="b200x3")},
        {"fleet": "other"},
    ],
)
def test_a_record_that_says_no_rate_of_it_there_leaves_the_gate_unmeasured(
    database: Database, changes: dict[str, Any]
) -> None:
    """Nothing rated is no rate of zero, and another stack's rate is no measure for this one."""
    with database.write() as conn:
        stand(conn)
        build.put_fleet(conn, name="other")
        record(conn, **changes)
        assert asked(conn).verdict is Verdict.UNMEASURED


def test_a_record_that_was_revoked_or_overtaken_by_a_failure_counts_no_more(
    database: Database,
) -> None:
    with database.write() as conn:
        stand(conn)
        record(conn)
        by = Revocation(actor="ada", reason="another build", now=START)
        qualification_store.revoke(conn, BASELINE, fleet=None, by=by)
        assert asked(conn).verdict is Verdict.UNMEASURED
        record(conn)
        assert asked(conn).verdict is Verdict.PASSING
        record(conn, standing=Standing.DISQUALIFIED, canary_id="canary-1")
        assert asked(conn).verdict is Verdict.UNMEASURED
