"""A worker is killed in the middle of a session: the session fails once, and every record comes."""

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from controlplane.store.evidence_tables import receipts, session_days, sessions
from controlplane.store.transaction import Database
from tests import tally
from tests.chaos.mortal import NOTES
from tests.chaos.plane import Plane, pause
from tests.chaos.worker import Worker
from worker.agent import spool

NUM_KILLS = 5
NAME = "w-1"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[Plane]:
    made = Plane(tmp_path)
    made.start()
    made.adopt(bake_s=2)
    yield made
    made.stop()


@pytest.mark.timeout(300)
def test_every_session_of_a_worker_that_is_killed_ends_once(plane: Plane, tmp_path: Path) -> None:
    """By the word of its next life, over real HTTP, whether the start had been delivered or not."""
    randomness = random.Random(11)
    folder = tmp_path / NAME
    folder.mkdir()
    token = plane.worker_token(NAME, to=tmp_path / "token")
    for _ in range(NUM_KILLS):
        _live_and_die(plane, folder, token, life_s=randomness.uniform(0.05, 1.5))
    last = Worker(NAME, url=plane.url, folder=folder, token_file=token)
    last.start()
    while spool.num_undelivered(folder):  # the test's own timeout bounds it
        pause(0.2)
    last.stop()

    known = _all(plane)
    noted = (folder / NOTES).read_text().split()
    assert len(noted) == len(set(noted))
    assert set(noted) | set(last.started) <= set(known)
    lost = [one for one in known.values() if one["outcome"] != "completed"]
    # Whoever is first: the next life, or the control plane when that life registers. Both fail it.
    assert {one["outcome"] for one in lost} <= {"failed", "lost"}
    assert {one["reason"] for one in lost} == {"process_lost"}
    assert 0 < len(lost) <= NUM_KILLS, "one session at a time, so one a death at most"
    _check_counted_once(plane, num_sessions=len(known), num_failed=len(lost))
    tally.note("kills_of_a_worker", test="worker_killed", count=NUM_KILLS)


def _live_and_die(plane: Plane, folder: Path, token: Path, *, life_s: float) -> None:
    """One life that begins a session at least, and ends in the middle of one."""
    notes = folder / NOTES
    num_before = len(notes.read_text().split()) if notes.exists() else 0
    program = [
        sys.executable,
        "-m",
        "tests.chaos.mortal",
        plane.url,
        *map(str, (folder, token)),
        NAME,
    ]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(program, stdout=log, stderr=log)
    while not notes.exists() or len(notes.read_text().split()) == num_before:
        assert process.poll() is None, (folder / "log").read_text()[-3000:]
        pause(0.05)
    pause(life_s)
    process.send_signal(signal.SIGKILL)
    process.wait(30)


def _all(plane: Plane) -> dict[str, dict[str, str]]:
    page = plane.get("/v1/sessions?limit=500")
    assert page["next_cursor"] is None
    return {one["id"]: one for one in page["items"]}


def _check_counted_once(plane: Plane, *, num_sessions: int, num_failed: int) -> None:
    database = Database.open(plane.database_url)
    with database.read() as conn:
        assert conn.scalar(select(func.count()).select_from(sessions)) == num_sessions
        assert conn.scalar(select(func.sum(session_days.c.num_sessions))) == num_sessions
        assert conn.scalar(select(func.sum(session_days.c.num_failed))) == num_failed
        lives = select(func.count().label("num"), func.max(receipts.c.seq).label("top")).group_by(
            receipts.c.incarnation
        )
        for life in conn.execute(lives):
            assert life.num == life.top, "a record is missing"
    database.close()
