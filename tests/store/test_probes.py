"""What workers measured in preflight is kept once, on a database that has other canaries' too."""

from typing import Any

from controlplane.contract.messages import ProbeReport
from controlplane.contract.vocabulary import Reason
from controlplane.store import desired_states as desired_store
from controlplane.store import evidence as evidence_store
from controlplane.store import probes as probe_store
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START
from tests.domain import build as domain
from tests.domain.build import seconds


def report(probe: str = "canary-1-3", **changes: Any) -> ProbeReport:
    """Two lengths, the greater first, and a drill that left what was there before."""
    base: dict[str, Any] = {
        "incarnation": f"incarnation-{build.WORKER}",
        "probe": probe,
        "canary": "canary-1",
        "lengths": [
            {"length": 120, "retained_bytes": 2**40},
            {"length": 8, "retained_bytes": 0},
        ],
        "flag_bytes_before": 7,
        "rollback_ms": 41.5,
        "flag_bytes_left": 7,
        "detail": "a\x00b",
    }
    return ProbeReport.model_validate({**base, **changes})


def fill(conn: Connection) -> str:
    """A fleet with two workers and two canaries. Returns: id of the first worker."""
    build.put_fleet(conn)
    build.put_worker(conn, "worker-2")
    worker = build.put_worker(conn)
    build.put_canary(conn)
    build.put_canary(conn, id="canary-2", name="fused-allreduce-2")
    other = report("canary-2-3", canary="canary-2", incarnation="incarnation-worker-2")
    probe_store.insert(conn, worker_id="id-worker-2", report=other, now=START)
    return worker.id


def test_a_report_comes_back_as_it_was_told(database: Database) -> None:
    with database.write() as conn:
        worker_id = fill(conn)
        assert probe_store.insert(conn, worker_id=worker_id, report=report(), now=START)
    with database.read() as conn:
        (kept,) = probe_store.of_canary(conn, canary_id="canary-1")
    assert (kept.id, kept.worker, kept.received_at) == ("canary-1-3", build.WORKER, START)
    assert kept.lengths == {8: 0, 120: 2**40}
    assert (kept.flag_bytes_before, kept.rollback_ms, kept.flag_bytes_left) == (7, 41.5, 7)
    assert (kept.fault, kept.detail) == (None, "a\ufffdb")


def test_the_first_answer_stays_and_a_repeat_is_told(database: Database) -> None:
    """A worker repeats a report whose answer it did not get; it must not turn a verdict."""
    again = report(rollback_ms=None, fault=Reason.NAN)
    with database.write() as conn:
        worker_id = fill(conn)
        assert probe_store.insert(conn, worker_id=worker_id, report=report(), now=START)
        assert not probe_store.insert(conn, worker_id=worker_id, report=again, now=START)
    with database.read() as conn:
        (kept,) = probe_store.of_canary(conn, canary_id="canary-1")
    assert (kept.rollback_ms, kept.fault) == (41.5, None)


def test_a_canary_is_judged_on_its_own_reports_oldest_first(database: Database) -> None:
    with database.write() as conn:
        worker_id = fill(conn)
        late = report("canary-1-2", fault=Reason.OUT_OF_MEMORY, rollback_ms=None)
        probe_store.insert(conn, worker_id=worker_id, report=late, now=START + seconds(5))
        probe_store.insert(conn, worker_id=worker_id, report=report(), now=START)
    with database.read() as conn:
        canary = domain.canary(fleet=build.FLEET, stack=build.STACK)
        probes = evidence_store.of_canary(conn, canary=canary, since=START).probes
    assert [one.id for one in probes] == ["canary-1-3", "canary-1-2"]
    assert probes[1].fault is Reason.OUT_OF_MEMORY


def test_a_desired_state_keeps_the_probe_it_asks_for(database: Database) -> None:
    probe = {
        "id": "canary-1-3",
        "canary": "canary-1",
        "flag": build.FLAG,
        "flags": {build.FLAG: build.FUSED},
        "lengths": [8, 120],
        "seed": 3,
        "retained_at_most": 2**20,
    }
    wanted = build.desired(probe=probe, is_admitting=False)
    with database.write() as conn:
        worker_id = fill(conn)
        desired_store.put(conn, worker_id=worker_id, desired=wanted, canary_id=None, now=START)
    with database.read() as conn:
        stored = desired_store.get(conn, worker_id=worker_id)
    assert stored is not None
    assert stored.desired == wanted
    assert stored.desired.probe is not None
