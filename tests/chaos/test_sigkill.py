"""The control plane is killed at any moment: nothing is lost, and nothing flips twice."""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import select

from controlplane.store import audit as audit_store
from controlplane.store.tables import flips, transitions
from controlplane.store.transaction import Database
from tests.chaos.plane import Plane, pause
from tests.chaos.worker import FLAG, Worker

NAMES = ("w-1", "w-2", "w-3")
TERMINAL = {"promoted", "rolled_back", "aborted", "cancelled"}
# Seconds of life between a start and the next kill.
SHORTEST_S, LONGEST_S = 0.1, 1.2


@pytest.mark.timeout(600)
def test_ten_kills_on_sqlite(tmp_path: Path) -> None:
    survive(Plane(tmp_path), tmp_path, num_kills=10, seed=1)


@pytest.mark.timeout(600)
def test_ten_kills_on_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    survive(Plane(tmp_path, database_url=postgresql_url), tmp_path, num_kills=10, seed=2)


def survive(plane: Plane, folder: Path, *, num_kills: int, seed: int) -> None:
    """Run a canary to its promotion over `num_kills` deaths of the control plane."""
    randomness = random.Random(seed)
    plane.start()
    plane.adopt(bake_s=max(2, num_kills // 5))
    with _workers(plane, folder, NAMES) as (workers, generations):
        name = plane.start_canary()
        for _ in range(num_kills):
            pause(randomness.uniform(SHORTEST_S, LONGEST_S))
            plane.kill()
            plane.start()
            generations.append(plane.generations())
        _until(lambda: plane.canary(name)["phase"] in TERMINAL)
        _until(lambda: {worker.variants[-1] for worker in workers} == {"fused_steady"})
    canary = plane.canary(name)
    outcomes = plane.sessions()
    plane.stop()
    assert canary["phase"] == "promoted", canary["reason"]
    assert set(outcomes) == {session for worker in workers for session in worker.started}
    assert set(outcomes.values()) == {"completed"}
    _check_workers(workers, generations)
    _check_history(plane.database_url)


def _check_workers(workers: list[Worker], generations: list[dict[str, int]]) -> None:
    for worker in workers:
        told = [seen[worker.name] for seen in generations]
        assert told == sorted(told), f"{worker.name} fell: {told}"
        assert worker.generations == sorted(worker.generations)
        # From the fallback to the variant, once: nothing flips twice.
        assert worker.variants == ["nccl", "fused_steady"], worker.variants


def _check_history(url: str) -> None:
    """One row for each flip, each from where the last one led; transitions and audit are chains."""
    database = Database.open(url)
    with database.read() as conn:
        flipped = conn.execute(select(flips).order_by(flips.c.sequence)).all()
        moved = conn.execute(select(transitions).order_by(transitions.c.sequence)).all()
        num_audited = audit_store.verify(conn)
    database.close()
    assert max(Counter((row.worker_id, row.generation) for row in flipped).values()) == 1
    for _, rows in itertools.groupby(
        sorted(flipped, key=lambda row: (row.worker_id, row.sequence)), lambda row: row.worker_id
    ):
        chain = [row.flags_to.get(FLAG) for row in rows]
        assert len(list(itertools.groupby(chain))) <= 2, f"there and back: {chain}"
    for before, after in itertools.pairwise(moved):
        assert before.phase_to == after.phase_from, (before, after)
    assert [row.event for row in moved].count("bake_passed") == 1
    assert num_audited > 0


@contextmanager
def _workers(
    plane: Plane, folder: Path, names: tuple[str, ...]
) -> Iterator[tuple[list[Worker], list[dict[str, int]]]]:
    """Workers that serve viewers, and a list for what they are told; stopped before the plane."""
    workers = [
        Worker(
            name,
            url=plane.url,
            folder=folder / name,
            token_file=plane.worker_token(name, to=folder / f"{name}.token"),
        )
        for name in names
    ]
    for worker in workers:
        worker.start()
    try:
        _until(lambda: plane.are_settled(len(names)))
        yield workers, [plane.generations()]
    finally:
        for worker in workers:
            worker.stop()


def _until(condition: Callable[[], bool]) -> None:
    """Wait; the test's own timeout bounds it."""
    while not condition():
        pause(0.1)
