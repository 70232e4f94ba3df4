"""The gate `quality` in whole lives of canaries: held without a report, decided by one."""

import json

from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, decisions, qualities
from controlplane.services.decisions import Result
from controlplane.services.qualities import Measured
from controlplane.store import history
from controlplane.store.transaction import Database
from tests.domain import build
from tests.simulation.fleet_of import Fleet, adopted

POLICY = json.dumps(
    build.document(
        name="picture",
        steps=[{"name": "one", "workers": 1, "bake": "5s", "least_sessions": 1}],
        gates=[
            {"gate": "freshness", "metric": "record_age", "at_most": "15s"},
            {"gate": "quality", "metric": "quality", "measure": "vmaf", "at_least": 90},
        ],
        limits={"outcome_horizon": "30s", "hold_after": "20s", "lease": "60s"},
    )
)


def begun(database: Database, *, seed: int) -> tuple[Fleet, str]:
    fleet = adopted(database, seed=seed, documents=[POLICY])
    name = fleet.start("fused_steady", policy="picture")
    fleet.run_to(name, Phase.PROGRESSING)
    return fleet, name


def report(fleet: Fleet, name: str, value: float) -> None:
    measured = Measured(measure="vmaf", value=value, num_samples=200)
    with fleet.database.write() as conn:
        qualities.report(conn, name, measured, act=fleet.act("the nightly run"))


def test_without_a_report_it_is_held_as_unmeasured_and_one_lets_it_go_on(
    database: Database,
) -> None:
    fleet, name = begun(database, seed=31)
    held = fleet.run_to(name, Phase.HELD, *TERMINAL)
    assert held.phase is Phase.HELD
    assert "no vmaf has been reported for fused_steady" in held.reason

    report(fleet, name, 95.5)
    with fleet.database.write() as conn:
        canaries.ask(conn, name, RequestKind.RESUME, act=fleet.act("measured now"))

    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED


def test_a_good_report_promotes(database: Database) -> None:
    fleet, name = begun(database, seed=32)
    report(fleet, name, 90.0)
    assert fleet.run_to(name, *TERMINAL).phase is Phase.PROMOTED


def test_a_bad_report_rolls_back_and_is_on_record_with_the_decision(database: Database) -> None:
    """What the judge saw is judged again to the same, so it was stored with all that it read."""
    fleet, name = begun(database, seed=33)
    report(fleet, name, 95.0)
    fleet.world.run(seconds=1)
    report(fleet, name, 0.1 + 0.2)
    canary = fleet.run_to(name, *TERMINAL)
    assert canary.phase is Phase.ROLLED_BACK
    assert canary.reason.startswith("quality: vmaf 0.3 over 200 samples, 90 asked for")
    with fleet.database.read() as conn:
        made = history.decisions_of(conn, canary_id=canary.id, limit=500)
        (failed,) = [one for one in made if one.verdict == "failing"]
        table = decisions.get(conn, failed.id).inputs["case"]["evidence"]["qualities"]
        verified = decisions.verify(conn, failed.id)
    assert verified.result is Result.EQUAL
    ((value, num_samples),) = [
        (row[table["columns"].index("value")], row[table["columns"].index("num_samples")])
        for row in table["rows"]
    ]
    assert (value, num_samples) == (0.1 + 0.2, 200)
