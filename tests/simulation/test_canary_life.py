"""Whole lives of canaries on a simulated fleet, with the real services, reconcilers and store."""

import random

import pytest

from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.errors import ConflictError
from controlplane.simulation.worker import Behaviour
from controlplane.store import canaries as canary_store
from controlplane.store.transaction import Database
from tests.simulation.fleet_of import BEHAVIOURS, MIB, NAMES, Fleet, adopted

FIRST_QUIET_BEAT = 150


def test_a_good_variant_is_promoted_to_every_worker(database: Database) -> None:
    fleet = adopted(database, seed=1)
    name = fleet.start("fused_steady")
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED
    fleet.world.run(seconds=30)
    assert set(fleet.variants().values()) == {"fused_steady"}


def test_a_slow_variant_is_rolled_back_by_the_floor(database: Database) -> None:
    fleet = adopted(database, seed=2)
    name = fleet.start("fused_small_tiles")
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert fleet.events(name)[-3:] == ["gate_failed", "containment_seen", "verification_seen"]
    assert set(fleet.variants().values()) == {"nccl"}


def test_memory_kept_for_each_length_is_stopped_before_a_session_fails(
    database: Database,
) -> None:
    fleet = adopted(database, seed=3)
    name = fleet.start("fused_all")
    fleet.run_to(name, Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK)
    assert "memory" in fleet.canary(name).reason
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK


def test_an_out_of_memory_on_the_variant_is_a_hard_stop(database: Database) -> None:
    behaviours = BEHAVIOURS | {
        "fused_all": Behaviour(kept_bytes_per_length=MIB // 2, fails_after_lengths=2)
    }
    fleet = adopted(database, seed=4, behaviours=behaviours)
    name = fleet.start("fused_all", policy="as-in-august")
    fleet.run_to(name, Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK)
    assert "hard_stopped" in fleet.events(name)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK


def test_a_worker_killed_in_a_session_fails_the_canary(database: Database) -> None:
    fleet = adopted(database, seed=5)
    name = fleet.start("fused_steady")
    exposed = _exposed(fleet, name)
    fleet.world.run_until(
        lambda: fleet.world.workers[exposed].variant == "fused_steady", within_s=60
    )
    fleet.world.run(seconds=1)
    fleet.world.workers[exposed].kill(restart_after_s=1)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert "gate_failed" in fleet.events(name)


def test_a_worker_that_acknowledges_nothing_is_contained_by_its_lease(
    database: Database,
) -> None:
    """It hears nothing of the rollback: only the lapse of its lease takes it off the variant."""
    fleet = adopted(database, seed=6)
    name = fleet.start("fused_small_tiles")
    exposed = _exposed(fleet, name)
    fleet.world.run_until(
        lambda: fleet.world.workers[exposed].variant == "fused_small_tiles", within_s=60
    )
    fleet.world.workers[exposed].is_deaf = True
    fleet.run_to(name, Phase.ROLLING_BACK)
    lease_until = fleet.canary(name).lease_until
    contained = fleet.run_to(name, Phase.CONTAINED)
    assert lease_until is not None
    assert contained.phase_since > lease_until
    assert fleet.world.workers[exposed].variant == "nccl"
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert f"quarantined: {exposed}" in fleet.canary(name).reason


def test_silence_never_advances_a_canary(database: Database) -> None:
    fleet = adopted(database, seed=7)
    name = fleet.start("fused_steady")
    exposed = _exposed(fleet, name)
    fleet.world.workers[exposed].is_mute = True
    canary = fleet.run_to(name, Phase.HELD)
    assert canary.bake.total_seconds() == 0
    fleet.world.run(seconds=120)
    assert fleet.canary(name).phase is Phase.HELD


def test_only_one_canary_of_a_stratum_runs_and_the_next_waits(database: Database) -> None:
    fleet = adopted(database, seed=8)
    first = fleet.start("fused_steady")
    fleet.run_to(first, Phase.PROGRESSING)
    try:
        second = fleet.start("fused_small_tiles")
    except ConflictError:
        pytest.fail("a second canary may wait as pending")
    fleet.world.run(seconds=3)
    assert fleet.canary(second).phase is Phase.PENDING
    fleet.run_to(first, *TERMINAL)
    fleet.run_to(second, Phase.PROGRESSING)


@pytest.mark.parametrize("beat", [1, 2, 3, 4, 5, 6, 7, 11])
@pytest.mark.parametrize("variant", ["fused_steady", "fused_small_tiles"])
def test_a_crash_after_any_beat_changes_nothing(
    sqlite_database: Database, beat: int, variant: str
) -> None:
    """The controller dies after every `beat`-th beat, for hundreds of them.

    It must be left alone at last: one that dies after each beat never comes to record anything.
    """
    fleet = adopted(
        sqlite_database, seed=beat, crashes=lambda num: num % beat == 0 and num < FIRST_QUIET_BEAT
    )
    name = fleet.start(variant)
    canary = fleet.run_to(name, *TERMINAL, within_s=3000)
    expected = Phase.PROMOTED if variant == "fused_steady" else Phase.ROLLED_BACK
    assert fleet.world.num_crashes > 0
    assert canary.phase is expected, canary.reason
    events = fleet.events(name)
    assert events == sorted(set(events), key=events.index)  # nothing happens twice


def test_crashes_at_random_moments_change_nothing(database: Database) -> None:
    draws = random.Random(9)
    fleet = adopted(database, seed=9, crashes=lambda _num_beats: draws.random() < 0.1)
    name = fleet.start("fused_steady")
    assert fleet.run_to(name, *TERMINAL, within_s=3000).phase is Phase.PROMOTED
    assert fleet.world.num_crashes > 0


def test_no_more_than_half_of_the_stratum_ever_runs_an_unproven_variant(
    database: Database,
) -> None:
    fleet = adopted(database, seed=10)
    name = fleet.start("fused_steady")

    def check() -> None:
        if fleet.canary(name).phase not in TERMINAL:
            on_variant = [w for w in fleet.world.workers.values() if w.variant != "nccl"]
            assert len(on_variant) <= len(NAMES) // 2

    fleet.world.run(seconds=20, check=check)


def _exposed(fleet: Fleet, name: str) -> str:
    """Name of the worker that the first step exposes."""
    canary = fleet.run_to(name, Phase.PROGRESSING)
    with fleet.database.read() as conn:
        return canary_store.exposed(conn, canary_id=canary.id)[0].worker
