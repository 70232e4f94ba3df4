"""A bad network between workers and control plane: nothing lost, nothing twice, and it arrives."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select

from controlplane.store.evidence_tables import receipts, session_days, sessions
from controlplane.store.transaction import Database
from tests.chaos.plane import POLICY, Plane, pause
from tests.chaos.proxy import Fault, Proxy, proxied
from tests.chaos.worker import FLAG, FLEET, Worker
from worker.agent import control, spool

pytestmark = pytest.mark.timeout(300)
BAD = [fault for fault in Fault if fault is not Fault.HALF_OPEN]
NUM_SESSIONS = 12
BACK = {"held", "rolling_back", "contained", "rolled_back"}


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path)
    made.start()
    made.adopt(bake_s=2)
    yield made
    made.stop()


@pytest.fixture
def proxy(plane: Plane) -> Iterator[Proxy]:
    with proxied(plane.port) as made:
        yield made


@contextmanager
def _serving(plane: Plane, proxy: Proxy, folder: Path, *names: str) -> Iterator[tuple[Worker, ...]]:
    """Workers that reach the control plane through the proxy; stopped and flushed at the end."""
    workers = tuple(
        Worker(
            name,
            url=proxy.url,
            folder=folder / name,
            token_file=plane.worker_token(name, to=folder / f"{name}.token"),
        )
        for name in names
    )
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        proxy.fault_of = lambda: Fault.NONE
        proxy.cut_off(is_half_open=False)
        for worker in workers:
            worker.stop()


def test_a_network_that_breaks_any_connection_loses_and_doubles_nothing(
    plane: Plane, proxy: Proxy, tmp_path: Path
) -> None:
    """Each connection meets one of the faults, also those that make the agent send again."""
    faults = itertools.cycle(BAD)
    proxy.fault_of = lambda: next(faults)
    with _serving(plane, proxy, tmp_path, "w-1") as (worker,):
        _until(lambda: plane.are_settled(1))
        path = f"/v1/fleets/{FLEET}/workers/w-1/pins"
        plane.post(path, flag=FLAG, variant="fused_steady")
        # One that meets no fault would else be kept for ever.
        _until(lambda: worker.variants[-1:] == ["fused_steady"], meanwhile=proxy.drop)
        _until(
            lambda: (
                len(worker.started) >= NUM_SESSIONS and min(proxy.num_of[one] for one in BAD) >= 3
            ),
            meanwhile=proxy.drop,
        )

    assert spool.num_undelivered(tmp_path / "w-1") == 0
    found = plane.sessions()
    assert set(found) == set(worker.started)
    assert set(found.values()) == {"completed"}
    assert worker.generations == sorted(worker.generations)
    _check_once(plane, num_sessions=len(found))


def test_a_worker_that_is_cut_off_leaves_the_variant_when_its_lease_ends(
    plane: Plane, proxy: Proxy, tmp_path: Path
) -> None:
    """Half-open: its connections stand, and nothing comes. Nobody tells it but its own clock."""
    plane.post("/v1/policies", document=_short_lease())
    with _serving(plane, proxy, tmp_path, "w-1", "w-2") as workers:
        _until(lambda: plane.are_settled(len(workers)))
        made = plane.post(
            "/v1/canaries", fleet=FLEET, flag=FLAG, variant="fused_steady", policy="chaos-short"
        )
        _until(lambda: any(worker.variants[-1:] == ["fused_steady"] for worker in workers))
        exposed = next(worker for worker in workers if worker.variants[-1:] == ["fused_steady"])

        proxy.cut_off(is_half_open=True)
        _until(lambda: exposed.variants[-1] == "nccl")
        num_before = len(exposed.started)
        _until(lambda: len(exposed.started) > num_before)  # viewers are served all the while
        _until(lambda: plane.canary(made["name"])["phase"] in BACK)

    started = {session for worker in workers for session in worker.started}
    assert set(plane.sessions()) == started
    _check_once(plane, num_sessions=len(started))


def _short_lease() -> str:
    text = POLICY.format(bake_s=60).replace("name: chaos", "name: chaos-short")
    return text.replace("lease: 5m", "lease: 4s").replace("at_most: 2m", "at_most: 3s")


def _check_once(plane: Plane, *, num_sessions: int) -> None:
    database = Database.open(plane.database_url)
    with database.read() as conn:
        assert conn.scalar(select(func.count()).select_from(sessions)) == num_sessions
        assert conn.scalar(select(func.sum(session_days.c.num_sessions))) == num_sessions
        by_life = select(
            receipts.c.incarnation, func.count().label("num"), func.max(receipts.c.seq).label("top")
        ).group_by(receipts.c.incarnation)
        for life in conn.execute(by_life):
            assert life.num == life.top, "a record is missing"
    database.close()


def _until(condition: Callable[[], bool], *, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Wait; the test's own timeout bounds it."""
    while not condition():
        meanwhile()
        pause(0.5)


@pytest.fixture(autouse=True)
def _short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead line is noticed in a second instead of 50: both are the same code."""
    monkeypatch.setattr(control, "HELD_TIMEOUT_S", 6.0)
    monkeypatch.setattr(control, "ANSWER_TIMEOUT_S", 2.0)
