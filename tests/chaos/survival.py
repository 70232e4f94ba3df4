"""A canary over many deaths of its control plane, and what must be true after each and at the end.

Nothing lost, nothing twice: sessions, decisions, flips, blocks of evidence; generations only rise;
the bake counts no time in which nobody looked.
"""

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Row, func, select

from controlplane.store import audit as audit_store
from controlplane.store.evidence_tables import session_days, sessions
from controlplane.store.tables import decisions, evidence_blocks, flips, transitions
from controlplane.store.transaction import Connection, Database
from tests.chaos.plane import ENVIRONMENT, Plane, pause
from tests.chaos.worker import FLAG, Worker

NAMES = ("w-1", "w-2", "w-3")
TERMINAL = {"promoted", "rolled_back", "aborted", "cancelled"}
# Seconds of life between a start and the next kill.
SHORTEST_S, LONGEST_S = 0.1, 1.2
# One gain of the bake is at most two ticks, however long nobody looked.
_ONE_GAIN = timedelta(seconds=2 * float(ENVIRONMENT["TICK_S"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The canary as the API shows it, and when that was."""

    at: datetime
    step: int
    phase: str
    bake: timedelta
    covered_until: datetime  # the newest record counted, or the start of the step


def survive(plane: Plane, folder: Path, *, num_kills: int, seed: int) -> int:
    """Run a canary to its promotion over `num_kills` deaths; returns those that it lived through.

    It bakes longer than all those lives together, so that none of them misses it.
    """
    randomness = random.Random(seed)
    plane.start()
    plane.adopt(bake_s=max(2, round(num_kills * LONGEST_S / 4)))
    num_lived = 0
    with _workers(plane, folder, NAMES) as (workers, generations):
        name = plane.start_canary()
        for _ in range(num_kills):
            before = _look(plane, name)
            pause(randomness.uniform(SHORTEST_S, LONGEST_S))
            killed_at = datetime.now(UTC)
            plane.kill()
            began_at = datetime.now(UTC)
            plane.start()
            after = _look(plane, name)
            _check_bake(before, after, alive=(killed_at - before.at, after.at - began_at))
            num_lived += after.phase not in TERMINAL
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
    _check_history(plane.database_url, num_sessions=len(outcomes))
    return num_lived


def _look(plane: Plane, name: str) -> Look:
    seen = plane.canary(name)
    return Look(
        at=datetime.now(UTC),
        step=seen["step"],
        phase=seen["phase"],
        bake=timedelta(seconds=seen["bake_s"]),
        covered_until=datetime.fromisoformat(seen["baked_until"] or seen["step_since"]),
    )


def _check_bake(before: Look, after: Look, *, alive: tuple[timedelta, timedelta]) -> None:
    """Bake comes of time in which someone looked, and at most one gain of the gap between."""
    assert after.step >= before.step, "a step was undone"
    is_same = after.step == before.step
    assert not is_same or after.bake >= before.bake, "bake was lost"
    gained = after.bake - before.bake if is_same else after.bake
    behind = before.at - before.covered_until if is_same else timedelta(0)
    assert gained <= behind + sum(alive, timedelta(0)) + _ONE_GAIN, (before, after, alive)


def _check_workers(workers: list[Worker], generations: list[dict[str, int]]) -> None:
    for worker in workers:
        told = [seen[worker.name] for seen in generations]
        assert told == sorted(told), f"{worker.name} fell: {told}"
        assert worker.generations == sorted(worker.generations)
        # From the fallback to the variant, once: nothing flips twice.
        assert worker.variants == ["nccl", "fused_steady"], worker.variants
        assert len(worker.started) == len(set(worker.started))


def _check_history(url: str, *, num_sessions: int) -> None:
    """One row for each thing that happened; transitions and audit are chains."""
    database = Database.open(url)
    try:
        with database.read() as conn:
            _check_flips(conn.execute(select(flips).order_by(flips.c.sequence)).all())
            _check_decisions(conn)
            _check_counted_once(conn, num_sessions=num_sessions)
            assert audit_store.verify(conn) > 0
    finally:
        database.close()


def _check_flips(flipped: Any) -> None:
    assert max(Counter((row.worker_id, row.generation) for row in flipped).values()) == 1
    by_worker = sorted(flipped, key=lambda row: (row.worker_id, row.sequence))
    for _, rows in itertools.groupby(by_worker, lambda row: row.worker_id):
        chain = [row.flags_to.get(FLAG) for row in rows]
        assert len(list(itertools.groupby(chain))) <= 2, f"there and back: {chain}"


def _check_decisions(conn: Connection) -> None:
    """Each transition once, from where the last one led; each decision behind one of them."""
    moved = conn.execute(select(transitions).order_by(transitions.c.sequence)).all()
    for before, after in itertools.pairwise(moved):
        assert before.phase_to == after.phase_from, (before, after)
    happened = [(row.event, row.step) for row in moved]
    assert len(happened) == len(set(happened)), happened
    assert [row.event for row in moved].count("bake_passed") == 1
    known = sorted(conn.scalars(select(decisions.c.id)))
    assert sorted(row.decision_id for row in moved if row.decision_id) == known


def _check_counted_once(conn: Connection, *, num_sessions: int) -> None:
    """Each session is one row, one in the counts of its day, and in one block at most."""
    assert conn.scalar(select(func.count()).select_from(sessions)) == num_sessions
    assert conn.scalar(select(func.sum(session_days.c.num_sessions))) == num_sessions
    blocks: list[Row[Any]] = list(conn.execute(select(evidence_blocks)))
    in_blocks = [session for block in blocks for session in block.sessions]
    assert blocks
    assert len(in_blocks) == len(set(in_blocks))


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
