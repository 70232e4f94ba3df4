"""Stop-the-line against a canary in each of its phases: everything to the fallback, and no return.

Over a promoted variant, so that lifting the line has something to give back.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError
from controlplane.domain.ledger import Standing
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, fleets
from controlplane.simulation.worker import Behaviour
from controlplane.store import fleets as fleet_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database
from tests.simulation.fleet_of import BEHAVIOURS, FLEET, Fleet, adopted

FLAG = "fused_allreduce"
PROMOTED = "fused_steady"
TRIED = "fused_small_tiles"
GOOD = BEHAVIOURS | {TRIED: Behaviour(fps_mean=24.95)}
FALLBACK = {"nccl"}


def _pending(fleet: Fleet) -> str:
    return fleet.start(TRIED)


def _preflight(fleet: Fleet) -> str:
    name = fleet.start(TRIED, policy="preflight")
    fleet.run_to(name, Phase.PREFLIGHT)
    return name


def _progressing(fleet: Fleet) -> str:
    name = fleet.start(TRIED)
    fleet.run_to(name, Phase.PROGRESSING)
    fleet.world.run(seconds=3)
    assert TRIED in {worker.variant for worker in fleet.world.workers.values()}
    return name


def _held(fleet: Fleet) -> str:
    name = _progressing(fleet)
    _ask(fleet, name, RequestKind.PAUSE)
    fleet.run_to(name, Phase.HELD)
    return name


def _baking(fleet: Fleet) -> str:
    name = fleet.start(TRIED)
    fleet.run_to(name, Phase.BAKING)
    return name


def _rolling_back(fleet: Fleet) -> str:
    """Its workers do not hear of it yet, so that it stays there."""
    name = _progressing(fleet)
    for worker in fleet.world.workers.values():
        worker.is_deaf = True
    _ask(fleet, name, RequestKind.ABORT)
    fleet.run_to(name, Phase.ROLLING_BACK)
    for worker in fleet.world.workers.values():
        worker.is_deaf = False
    return name


def _contained(fleet: Fleet) -> str:
    name = _progressing(fleet)
    _ask(fleet, name, RequestKind.ABORT)
    fleet.run_to(name, Phase.CONTAINED)
    return name


BROUGHT_TO: dict[Phase, Callable[[Fleet], str]] = {
    Phase.PENDING: _pending,
    Phase.PREFLIGHT: _preflight,
    Phase.PROGRESSING: _progressing,
    Phase.HELD: _held,
    Phase.BAKING: _baking,
    Phase.ROLLING_BACK: _rolling_back,
    Phase.CONTAINED: _contained,
}


def test_every_phase_that_does_not_end_is_tried() -> None:
    assert set(BROUGHT_TO) == set(Phase) - TERMINAL


def _proven(database: Database) -> Fleet:
    """A fleet that runs a promoted variant."""
    fleet = adopted(database, seed=70, behaviours=GOOD)
    _promote(fleet)
    fleet.world.run_until(lambda: set(fleet.variants().values()) == {PROMOTED}, within_s=60)
    return fleet


# The others are tried on either database in `make test-all`.
@pytest.mark.parametrize("phase", [Phase.PROGRESSING, Phase.HELD], ids=str)
def test_a_stopped_line_ends_the_canary_and_lifting_it_brings_back_what_was_promoted(
    sqlite_database: Database, phase: Phase
) -> None:
    _stop_in(phase, _proven(sqlite_database))


@pytest.mark.slow
@pytest.mark.parametrize("phase", BROUGHT_TO, ids=str)
def test_a_stopped_line_does_so_on_either_database(database: Database, phase: Phase) -> None:
    _stop_in(phase, _proven(database))


def _stop_in(phase: Phase, fleet: Fleet) -> None:
    name = BROUGHT_TO[phase](fleet)
    assert fleet.canary(name).phase is phase

    with fleet.database.write() as conn:
        fleets.stop_the_line(conn, FLEET, act=fleet.act("frozen frames"))
    ended = fleet.run_to(name, *TERMINAL)
    fleet.world.run_until(lambda: set(fleet.variants().values()) == FALLBACK, within_s=60)

    expected = Phase.CANCELLED if phase is Phase.PENDING else Phase.ROLLED_BACK
    assert ended.phase is expected, ended.reason
    _check_stays(fleet, FALLBACK)
    with pytest.raises(ConflictError):
        _ask(fleet, name, RequestKind.RESUME)

    with fleet.database.write() as conn:
        fleets.lift(conn, FLEET, act=fleet.act("found it"))
    fleet.world.run_until(lambda: set(fleet.variants().values()) == {PROMOTED}, within_s=60)
    _check_stays(fleet, {PROMOTED})
    assert fleet.canary(name) == ended


def test_no_canary_begins_on_a_stopped_line(sqlite_database: Database) -> None:
    fleet = adopted(sqlite_database, seed=71, behaviours=GOOD)
    with fleet.database.write() as conn:
        fleets.stop_the_line(conn, FLEET, act=fleet.act("frozen frames"))

    try:
        name = fleet.start(TRIED)
    except ConflictError:
        return
    assert fleet.run_to(name, *TERMINAL).phase is Phase.CANCELLED
    _check_stays(fleet, FALLBACK)


def _check_stays(fleet: Fleet, variants: set[str]) -> None:
    """For a while nothing else is wanted, told or run."""

    def check() -> None:
        assert {worker.variant for worker in fleet.world.workers.values()} == variants

    fleet.world.run(seconds=20, check=check)
    with fleet.database.read() as conn:
        workers = worker_store.in_fleet(conn, fleet=FLEET)
    assert {worker.desired_flags[FLAG] for worker in workers} == variants


def _ask(fleet: Fleet, name: str, kind: RequestKind) -> None:
    with fleet.database.write() as conn:
        canaries.ask(conn, name, kind, act=fleet.act("by hand"))


def _promote(fleet: Fleet) -> None:
    """As an earlier canary would have left it."""
    now = fleet.world.timeline.now()
    with fleet.database.write() as conn:
        its_fleet = fleet_store.get(conn, FLEET)
        fleet_store.save(conn, replace(its_fleet, promoted={FLAG: PROMOTED}))
        (worker, *_) = worker_store.in_fleet(conn, fleet=FLEET)
        proven = Qualification(
            flag=FLAG, variant=PROMOTED, hardware=worker.hardware, stack=worker.stack
        )
        entry = qualification_store.Entry(
            subject=proven, standing=Standing.QUALIFIED, actor="someone", reason="proven before"
        )
        qualification_store.append(conn, entry, now=now)
