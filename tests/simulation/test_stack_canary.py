"""A new stack is tried with what the old one runs, and proven or left as a whole."""

import json
from typing import Any

import pytest
from sqlalchemy import select

from controlplane.contract import vocabulary
from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError, InvalidValueError
from controlplane.domain.fleet import Worker
from controlplane.domain.ledger import DisqualifiedError, Standing
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, decisions, explanations, pages
from controlplane.simulation.worker import Behaviour
from controlplane.store import evidence as evidence_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.evidence_tables import sessions
from controlplane.store.transaction import Database
from controlplane.web.present import canary as canary_view
from controlplane.web.present import fleet as fleet_view
from tests.domain import build
from tests.simulation.fleet_of import BEHAVIOURS, FLEET, Fleet, adopted

FUSED = "fused_steady"
WORKERS = tuple(f"worker-{n}" for n in range(6))
UPGRADED = ("worker-4", "worker-5")
PARTS = {"torch": "2.14.0", "build": "simulated"}
NEW = vocabulary.stack_digest(PARTS)
OUT_OF_MEMORY = {**BEHAVIOURS, FUSED: Behaviour(fails_after_lengths=2)}


def document(**step: Any) -> str:
    base = {"name": "both", "workers": 2, "bake": "5s", "least_sessions": 4}
    return json.dumps(
        build.document(
            name="stack",
            flag=None,
            subject="stack",
            steps=[{**base, **step}],
            gates=[
                {"gate": "freshness", "metric": "record_age", "at_most": "6s"},
                {"gate": "floor", "metric": "session_fps", "at_least": 24.0},
                {"gate": "failures", "metric": "failed_sessions", "at_most": 0},
                {"gate": "regression", "metric": "evidence_of_harm"},
            ],
            limits={"block": "5s", "outcome_horizon": "30s", "lease": "10s", "hold_after": "60s"},
        )
    )


def upgraded(
    database: Database,
    *,
    seed: int,
    behaviours: dict[str, Behaviour] | None = None,
    names: tuple[str, ...] = UPGRADED,
    **step: Any,
) -> Fleet:
    """A fleet that runs the fused kernel, in which `names` have come back on another stack."""
    fleet = adopted(database, seed=seed, names=WORKERS, documents=[document(**step)])
    assert fleet.run_to(fleet.start(FUSED), *TERMINAL).phase is Phase.PROMOTED
    fleet.world.run(seconds=15)
    assert set(fleet.variants().values()) == {FUSED}
    for name in names:
        fleet.world.workers[name].restack(PARTS, behaviours or BEHAVIOURS)
    fleet.world.run(seconds=15)
    return fleet


def start(fleet: Fleet, **changes: Any) -> str:
    wanted = {"fleet": FLEET, "stack": NEW, "policy": "stack", **changes}
    with fleet.database.write() as conn:
        change = canaries.start(conn, canaries.Wanted(**wanted), act=fleet.act("try the stack"))
    name: str = change.subject["name"]
    return name


def said(fleet: Fleet, name: str) -> str:
    """Everything that is shown of the canary, to anybody."""
    now = fleet.world.timeline.now()
    with fleet.database.read() as conn:
        shown = explanations.explain(conn, name, now=now)
        seen = canary_view.view(pages.canary(conn, name, now=now), now=now)
        page = fleet_view.view(pages.fleet(conn, FLEET), now=now)
    return f"{shown.answer} {shown.needs} {shown.what_if} {seen} {page}"


def workers(fleet: Fleet) -> dict[str, Worker]:
    with fleet.database.read() as conn:
        return {one.name: one for one in worker_store.in_fleet(conn, fleet=FLEET)}


def generations(fleet: Fleet) -> dict[str, int]:
    """Of the workers that stay on the old stack."""
    return {
        name: one.desired_generation for name, one in workers(fleet).items() if one.stack != NEW
    }


def ran(fleet: Fleet, worker: str) -> set[str]:
    """What sessions of the worker's canary are told to run."""
    wanted = fleet.world.workers[worker].wanted
    assert wanted is not None
    assert wanted.experiment is not None
    return {arm.flags[build.FLAG] for arm in wanted.experiment.arms}


def standing(fleet: Fleet, stack: str = NEW) -> Standing | None:
    subject = Qualification(flag=build.FLAG, variant=FUSED, hardware="cpu", stack=stack)
    with fleet.database.read() as conn:
        return qualification_store.standings(conn, fleet=FLEET).get(subject)


def test_an_unproven_stack_runs_the_fallback_until_its_canary_passes(database: Database) -> None:
    fleet = upgraded(database, seed=1)
    assert {fleet.variants()[name] for name in UPGRADED} == {"nccl"}
    before = generations(fleet)

    name = start(fleet)
    fleet.run_to(name, Phase.PROGRESSING)
    fleet.world.run(seconds=5)
    assert [ran(fleet, one) for one in UPGRADED] == [{FUSED}, {FUSED}]
    assert all(fleet.world.workers[one].lease_until_s is not None for one in UPGRADED)
    assert f"both with {build.FLAG}={FUSED}" in said(fleet, name)

    canary = fleet.run_to(name, *TERMINAL)
    assert (canary.phase, canary.flag, canary.variants) == (
        Phase.PROMOTED,
        None,
        {build.FLAG: FUSED},
    )
    assert standing(fleet) is Standing.QUALIFIED
    assert f"stack {NEW} is qualified for what" in said(fleet, name)
    fleet.world.run(seconds=15)
    assert set(fleet.variants().values()) == {FUSED}
    with fleet.database.read() as conn:
        (record, *_) = qualification_store.of_subject(
            conn, Qualification(flag=build.FLAG, variant=FUSED, hardware="cpu", stack=NEW)
        )
        decided = history.decisions_of(conn, canary_id=canary.id, limit=100)
        verified = [decisions.verify(conn, one.id) for one in decided]
    assert {one.result for one in verified} == {decisions.Result.EQUAL}
    assert record.canary == name
    assert record.evidence_digest is not None
    assert record.basis is not None
    assert record.basis.num_sessions > 0
    assert generations(fleet) == before, "a worker of the old stack was told something"


def test_a_stack_that_runs_out_of_memory_under_the_fused_kernel_harms_only_its_own_sessions(
    database: Database,
) -> None:
    """August in small: on the new stack the kernel keeps memory for each length."""
    fleet = upgraded(database, seed=2, behaviours=OUT_OF_MEMORY)
    before = generations(fleet)
    name = start(fleet)
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert "out_of_memory" in canary.reason
    assert standing(fleet) is Standing.DISQUALIFIED
    assert f"to try the variants on trial on stack {NEW} there again" in said(fleet, name)
    fleet.world.run(seconds=15)

    assert {fleet.variants()[one] for one in UPGRADED} == {"nccl"}
    assert {v for one, v in fleet.variants().items() if one not in UPGRADED} == {FUSED}
    assert generations(fleet) == before
    with fleet.database.read() as conn:
        failed = conn.execute(
            select(sessions.c.canary, sessions.c.stack).where(sessions.c.outcome == "failed")
        ).all()
    assert failed
    assert {tuple(row) for row in failed} == {(canary.id, NEW)}

    with pytest.raises(DisqualifiedError, match="only an admin"):
        start(fleet)
    assert fleet.canary(start(fleet, may_repeat=True)).attempt == 2


def test_a_worker_of_the_new_stack_is_never_a_control(database: Database) -> None:
    """One of two is exposed; the other runs the fallback there, and says nothing of the old."""
    fleet = upgraded(database, seed=3, names=("worker-3", "worker-4", "worker-5"), workers=1)
    name = start(fleet)
    fleet.run_to(name, Phase.PROGRESSING)
    fleet.world.run(seconds=15)
    canary = fleet.canary(name)
    new = {one.name for one in workers(fleet).values() if one.stack == NEW}
    with fleet.database.read() as conn:
        seen = evidence_store.of_canary(conn, canary=canary, since=canary.created_at)
        blocks = history.blocks_of(conn, canary_id=canary.id)
    controls = {one.worker for one in seen.sessions if not one.is_drawn}
    drawn = {one.worker for one in seen.sessions if one.is_drawn}
    assert controls == set(WORKERS) - new
    assert len(drawn) == 1
    assert drawn < new
    counted = {session for block in blocks for session in block.sessions}
    by_id = {one.id: one.worker for one in seen.sessions}
    assert {by_id[session] for session in counted} <= controls | drawn
    held_back = [one for one in new - drawn if fleet.variants()[one] != "nccl"]
    assert not held_back


def test_a_worker_that_goes_back_to_the_old_stack_is_neither_exposed_nor_a_control(
    database: Database,
) -> None:
    fleet = upgraded(database, seed=4, bake="5m")
    name = start(fleet)
    fleet.run_to(name, Phase.PROGRESSING, Phase.BAKING)
    fleet.world.run(seconds=3)
    old = fleet.world.workers["worker-0"].stack
    fleet.world.workers["worker-5"].restack(old, BEHAVIOURS)
    fleet.world.run(seconds=20)
    canary = fleet.canary(name)
    with fleet.database.read() as conn:
        seen = evidence_store.of_canary(conn, canary=canary, since=canary.created_at)
    assert fleet.variants()["worker-5"] == FUSED
    assert {one.is_drawn for one in seen.sessions if one.worker == "worker-5"} == {True}
    assert "worker-5" not in seen.newest_record_at


def test_an_aborted_stack_goes_back_and_is_not_held_against_it(database: Database) -> None:
    fleet = upgraded(database, seed=5, bake="5m")
    name = start(fleet)
    fleet.run_to(name, Phase.PROGRESSING, Phase.BAKING)
    fleet.world.run(seconds=3)
    with database.write() as conn:
        canaries.ask(conn, name, RequestKind.ABORT, act=fleet.act("another day"))
    assert fleet.run_to(name, *TERMINAL).phase is Phase.ROLLED_BACK
    assert {fleet.variants()[one] for one in UPGRADED} == {"nccl"}
    assert standing(fleet) is None
    assert fleet.canary(start(fleet)).name == "stack-2"


def test_one_that_is_out_of_service_is_exposed_once_it_is_back(database: Database) -> None:
    fleet = upgraded(database, seed=6, names=("worker-5",))
    with database.write() as conn:
        worker_store.set_cordoned(conn, worker_id=workers(fleet)["worker-5"].id, is_cordoned=True)
    name = start(fleet)
    fleet.world.run(seconds=10)
    assert fleet.canary(name).phase is Phase.PENDING
    with database.write() as conn:
        worker_store.set_cordoned(conn, worker_id=workers(fleet)["worker-5"].id, is_cordoned=False)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED


def test_a_stack_canary_that_can_say_nothing_is_refused_with_what_to_do(
    database: Database,
) -> None:
    fleet = upgraded(database, seed=7)
    with pytest.raises(InvalidValueError, match="stack: 'ffff' is not allowed"):
        start(fleet, stack="ffff")
    with pytest.raises(InvalidValueError, match="flag"):
        start(fleet, flag=build.FLAG, variant=FUSED)
    with pytest.raises(InvalidValueError, match="policy"):
        start(fleet, policy="demo")
    first = start(fleet)
    with pytest.raises(ConflictError, match=f"{first} tries stack"):
        start(fleet)
