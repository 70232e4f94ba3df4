"""Every decision of whole lives of canaries is judged again to equality, and explained."""

import pytest

from controlplane.domain.canary import TERMINAL, Phase
from controlplane.services import decisions, explanations
from controlplane.services.decisions import Result, Verification
from controlplane.services.inputs import Asked
from controlplane.simulation.worker import Behaviour
from controlplane.store import history
from controlplane.store.transaction import Database
from tests.simulation.fleet_of import Fleet, adopted
from tests.simulation.test_evidence import REGRESSION, document, fleet_of


def verified(fleet: Fleet, name: str) -> list[Verification]:
    canary = fleet.canary(name)
    with fleet.database.read() as conn:
        made = history.decisions_of(conn, canary_id=canary.id)
        return [decisions.verify(conn, one.id) for one in made]


def asked(fleet: Fleet, name: str) -> set[str]:
    canary = fleet.canary(name)
    with fleet.database.read() as conn:
        made = history.decisions_of(conn, canary_id=canary.id)
        return {decisions.get(conn, one.id).inputs["asked"] for one in made}


def test_a_rollback_by_evidence_of_real_blocks_is_recomputed_and_explained(
    database: Database,
) -> None:
    """Blocks are closed in the look that judges them, and read from the database afterwards."""
    slow = {"fused_steady": Behaviour(slow_share=0.3), "nccl": Behaviour(slow_share=0.02)}
    fleet = fleet_of(database, document(REGRESSION), seed=1, **slow)
    name = fleet.start("fused_steady", policy="evidence")
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK

    found = verified(fleet, name)
    with database.read() as conn:
        told = explanations.explain(conn, name, now=fleet.world.timeline.now())

    assert found
    assert [(one.result, one.differences) for one in found] == [(Result.EQUAL, ())] * len(found)
    assert told.evidence is not None
    assert told.evidence.p_value is not None
    assert told.evidence.p_value <= 0.01  # it rolls back at evidence of 100
    assert told.evidence.attributed == "slow"
    assert "one slow session less in the block that crossed 100" in told.what_if[0]


@pytest.mark.parametrize(
    ("variant", "policy"),
    [
        ("fused_steady", "demo"),
        ("fused_all", "demo"),
        ("fused_small_tiles", "demo"),
        ("fused_all", "preflight"),
        ("fused_steady", "preflight"),
    ],
)
def test_every_decision_of_a_life_is_recomputed(
    sqlite_database: Database, variant: str, policy: str
) -> None:
    fleet = adopted(sqlite_database, seed=3)
    name = fleet.start(variant, policy=policy)
    fleet.run_to(name, *TERMINAL, Phase.HELD, within_s=600)

    found = verified(fleet, name)

    assert found
    assert [(one.result, one.differences) for one in found] == [(Result.EQUAL, ())] * len(found)
    assert (Asked.PREFLIGHT in asked(fleet, name)) is (policy == "preflight")
