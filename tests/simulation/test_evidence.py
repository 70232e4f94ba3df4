"""Canaries judged by evidence, on the real way from a worker's records to the decision."""

import json
from datetime import timedelta
from typing import Any

import pytest

from controlplane.contract.records import Record
from controlplane.contract.vocabulary import EventName
from controlplane.domain import comparison
from controlplane.domain.blocks import FAILED, SLOW, Block, Kind
from controlplane.domain.canary import EXPOSED, TERMINAL, Phase
from controlplane.domain.observation import RequestKind
from controlplane.simulation.network import Identity
from controlplane.simulation.worker import Behaviour
from controlplane.simulation.world import World
from controlplane.store import history
from controlplane.store import requests as request_store
from controlplane.store.transaction import Database
from tests.domain import build
from tests.simulation.fleet_of import BEHAVIOURS, Fleet, adopted

WORKERS = tuple(f"worker-{n}" for n in range(6))
FRESHNESS = {"gate": "freshness", "metric": "record_age", "at_most": "6s"}
REGRESSION = {"gate": "regression", "metric": "evidence_of_harm"}
PARITY = {"gate": "non_inferiority", "metric": "evidence_of_parity"}


def document(*gates: dict[str, Any], **changes: Any) -> str:
    """Half of the workers, half of their sessions; blocks of five seconds."""
    step = {"name": "half", "workers": "50%", "bake": changes.pop("bake", "5m")}
    step |= {"least_sessions": 4, "arm_share": changes.pop("arm_share", "50%")}
    limits = {"block": "5s", "outcome_horizon": "30s", "lease": "10s", "hold_after": "60s"}
    margin = {"margin": "30%"} if PARITY in gates else {}
    return json.dumps(
        build.document(
            name="evidence",
            steps=[{**step, **margin}],
            gates=[FRESHNESS, *gates],
            limits={**limits, "decide_within": "10m"},
            hard_stops=["nan"],
            **changes,
        )
    )


def fleet_of(
    database: Database, text: str, *, seed: int, make_world: Any = World, **behaviours: Behaviour
) -> Fleet:
    return adopted(
        database,
        seed=seed,
        behaviours=BEHAVIOURS | behaviours,
        names=WORKERS,
        documents=[text],
        make_world=make_world,
    )


def blocks(fleet: Fleet, name: str) -> tuple[Block, ...]:
    with fleet.database.read() as conn:
        return history.blocks_of(conn, canary_id=fleet.canary(name).id)


def test_a_variant_that_is_slow_more_often_is_rolled_back_by_evidence(database: Database) -> None:
    """The average over all of its sessions is above 24."""
    slow = {"fused_steady": Behaviour(slow_share=0.3), "nccl": Behaviour(slow_share=0.02)}
    fleet = fleet_of(database, document(REGRESSION), seed=1, **slow)
    name = fleet.start("fused_steady", policy="evidence")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert "regression: evidence of harm" in canary.reason
    slow_seen = comparison.totals(blocks(fleet, name), SLOW)
    assert slow_seen.canary_bad / slow_seen.canary > slow_seen.control_bad / slow_seen.control


def test_a_good_variant_is_promoted_once_it_is_shown_to_be_as_good(database: Database) -> None:
    fleet = fleet_of(database, document(REGRESSION, PARITY, bake="5s"), seed=2)
    name = fleet.start("fused_steady", policy="evidence")
    assert fleet.run_to(name, *TERMINAL, within_s=600).phase is Phase.PROMOTED
    written = blocks(fleet, name)
    shown = comparison.non_inferiority(written, margin=0.3)
    assert min(shown.values()) >= 20
    assert all(block.kind is Kind.SESSIONS for block in written)


def test_a_bad_week_rolls_nothing_back_and_promotes_nothing_too_early(database: Database) -> None:
    """Both variants slow in 40 % of sessions: no regression, and not the time to expose more."""
    bad = {"fused_steady": Behaviour(slow_share=0.4), "nccl": Behaviour(slow_share=0.4)}
    rate = {"gate": "slow_rate", "metric": "slow_rate", "expected": "2%"}
    fleet = fleet_of(database, document(REGRESSION, rate), seed=3, **bad)
    name = fleet.start("fused_steady", policy="evidence")
    fleet.world.run(seconds=90)
    canary = fleet.canary(name)
    assert canary.phase in EXPOSED
    assert comparison.totals(blocks(fleet, name), SLOW).canary_bad > 5


def test_deaths_that_leave_no_record_are_evidence(database: Database) -> None:
    """A session that was opened and never closed is counted when its process is replaced."""
    dying = {"fused_steady": Behaviour(death_share=0.5)}
    fleet = fleet_of(database, document(REGRESSION), seed=4, **dying)
    name = fleet.start("fused_steady", policy="evidence")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert canary.reason.startswith("regression: evidence of harm")
    failed = comparison.totals(blocks(fleet, name), FAILED)
    assert failed.canary_bad >= 2
    assert failed.control_bad == 0


class Repeating(World):
    """A network that delivers every record twice, the second time later."""

    def record(self, identity: Identity, event: EventName, record: Record) -> None:
        super().record(identity, event, record)
        self.timeline.after(3.0, lambda: World.record(self, identity, event, record))


class Late(World):
    """A network that delivers the end of a session half a minute late."""

    def record(self, identity: Identity, event: EventName, record: Record) -> None:
        if event is EventName.SESSION_ENDED:
            self.timeline.after(30.0, lambda: World.record(self, identity, event, record))
        else:
            super().record(identity, event, record)


def test_repeated_records_count_once(database: Database) -> None:
    bad = {"fused_steady": Behaviour(slow_share=0.3), "nccl": Behaviour(slow_share=0.3)}
    fleet = fleet_of(database, document(REGRESSION), seed=5, make_world=Repeating, **bad)
    name = fleet.start("fused_steady", policy="evidence")
    fleet.world.run(seconds=60)
    counted = [session for block in blocks(fleet, name) for session in block.sessions]
    assert len(counted) == len(set(counted))
    started = sum(w.num_started for w in fleet.world.workers.values())
    assert 0 < len(counted) <= started


def test_what_is_late_keeps_its_block_open_instead_of_counting_as_good(database: Database) -> None:
    """A session whose end is not known yet has not been shown to be healthy."""
    fleet = fleet_of(database, document(REGRESSION, PARITY), seed=6, make_world=Late)
    name = fleet.start("fused_steady", policy="evidence")
    fleet.world.run(seconds=35)
    written = blocks(fleet, name)
    began = fleet.canary(name).created_at
    drawn = [b for b in written if b.tables]
    assert all(block.closed_at - block.opened_at >= timedelta(seconds=30) for block in drawn)
    assert all(block.opened_at - began < timedelta(seconds=10) for block in drawn)
    assert fleet.canary(name).phase is not Phase.PROMOTED


@pytest.mark.parametrize("seed", [7, 8])
def test_a_controller_that_dies_between_its_beats_writes_no_block_twice(
    database: Database, seed: int
) -> None:
    fleet = adopted(
        database,
        seed=seed,
        names=WORKERS,
        documents=[document(REGRESSION, PARITY)],
        crashes=lambda num_beats: num_beats % 7 == seed % 7,
    )
    name = fleet.start("fused_steady", policy="evidence")
    fleet.world.run(seconds=60)
    positions = [(block.kind, block.index) for block in blocks(fleet, name)]
    assert len(positions) == len(set(positions))
    assert fleet.world.num_crashes > 3


def test_time_on_the_baseline_while_it_is_held_promotes_no_variant(database: Database) -> None:
    """Where the whole worker is the canary's, its sessions during a pause were nobody's."""
    text = document(PARITY, bake="5s", arm_share="100%")
    bad = {"fused_steady": Behaviour(slow_share=0.5)}
    fleet = fleet_of(database, text, seed=9, **bad)
    name = fleet.start("fused_steady", policy="evidence")
    fleet.world.run(seconds=14)
    _ask(fleet, name, RequestKind.PAUSE)
    fleet.world.run(seconds=90)
    assert fleet.canary(name).phase is Phase.HELD
    during = comparison.totals(blocks(fleet, name), SLOW)
    _ask(fleet, name, RequestKind.RESUME)
    fleet.world.run(seconds=25)
    assert fleet.canary(name).phase is not Phase.PROMOTED
    assert during.canary <= 12, "some few sessions before the pause"


def _ask(fleet: Fleet, name: str, kind: RequestKind) -> None:
    with fleet.database.write() as conn:
        request_store.insert(
            conn,
            id=fleet.world.new_id(),
            canary_id=fleet.canary(name).id,
            kind=kind,
            actor="ada",
            reason="a look",
            now=fleet.world.timeline.now(),
        )
