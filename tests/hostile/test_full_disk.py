"""A disk that is full, under the database and under a worker's spool: said, survived, nothing half.

The control plane answers 503 until there is room; the agent takes no session that it cannot record.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from controlplane.domain.errors import UnavailableError
from controlplane.store.transaction import Database
from tests.api.control_plane import FLEET, ControlPlane
from tests.api.otlp_bodies import RESOURCE, record, request
from tests.worker.agent.build import MemoryControlPlane, agent, desired
from worker.agent.spool import Kind, Spool

MOST_PAGES = 2**30
ROOT = Path(__file__).parents[2]


@contextmanager
def full(database: Database) -> Iterator[None]:
    """The file may not grow by a page, through whichever connection."""
    with database.read() as conn:
        num_pages = conn.exec_driver_sql("PRAGMA page_count").scalar_one()
    limit = [num_pages]

    def bounded(connection: Any, *_: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {limit[0]}")

    event.listen(database._engine, "checkout", bounded)
    try:
        yield
    finally:
        limit[0] = MOST_PAGES
        # Once more for those connections that know the bound; then it is the largest there is.
        with database.write():
            pass


def _sender(plane: ControlPlane) -> Callable[[int], int]:
    """Sends ten sessions that ended; returns the status."""
    plane.fleet("w-1")
    life = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    resource = {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": "w-1",
        "steadyframe.stack": life["stack"],
    }

    def send(number: int) -> int:
        told = [
            record(
                "session.ended", seq=10 * number + i, session=f"s-{number}-{i}", detail="x" * 900
            )
            for i in range(1, 11)
        ]
        return plane.logs("w-1", request(*told, resource=resource)).status_code

    return send


def test_a_full_database_takes_a_batch_whole_or_not_at_all(sqlite_plane: ControlPlane) -> None:
    send = _sender(sqlite_plane)
    database = sqlite_plane.parts.context.database
    with full(database):
        statuses: list[int] = []
        while not statuses or (statuses[-1] == 200 and len(statuses) < 500):
            statuses.append(send(len(statuses)))
        assert statuses[-1] == 503, "the disk was never full"
        refused = sqlite_plane.post("/v1/fleets", name="another", reason="x" * 400)
        assert sqlite_plane.get(f"/v1/fleets/{FLEET}")["name"] == FLEET  # what is there is served
        assert sqlite_plane.client.get("/livez").status_code == 200
    num_taken = statuses.count(200)
    assert _num_sessions(sqlite_plane) == 10 * num_taken

    assert send(num_taken) == 200  # the same batch, once there is room
    assert _num_sessions(sqlite_plane) == 10 * (num_taken + 1)
    assert refused.status_code in {201, 503}
    with database.read() as conn:
        assert conn.exec_driver_sql("PRAGMA integrity_check").scalar_one() == "ok"


def test_a_refusal_for_want_of_room_says_so_and_when_to_come_again(
    sqlite_plane: ControlPlane,
) -> None:
    sqlite_plane.fleet("w-1")
    with full(sqlite_plane.parts.context.database):
        answers = (
            sqlite_plane.post("/v1/policies", document=_policy(number)) for number in range(200)
        )
        refused = next(one for one in answers if not one.is_success)

    assert refused.status_code == 503
    assert refused.headers["retry-after"] == "1"
    assert refused.headers["content-type"] == "application/problem+json"
    assert "the disk is full" in refused.json()["detail"]


def _policy(number: int) -> str:
    text = (ROOT / "policies" / "demo.yaml").read_text()
    return text.replace("name: demo", f"name: demo-{number}") + "# " + "x" * 5000


def _num_sessions(plane: ControlPlane) -> int:
    rows = plane.get("/v1/reports/weekly")["items"]
    return sum(row["num_sessions"] for row in rows)


def test_only_what_passes_is_called_unavailable(database: Database) -> None:
    """A statement that is wrong stays a fault of ours: asked again it would fail again."""
    with pytest.raises(Exception, match="nowhere") as raised, database.write() as conn:
        conn.exec_driver_sql("SELECT * FROM nowhere")

    assert not isinstance(raised.value, UnavailableError)


def test_a_database_that_is_gone_is_unavailable() -> None:
    database = Database.open("postgresql+psycopg://nobody@127.0.0.1:9/none")
    with pytest.raises(UnavailableError, match="cannot be reached"), database.read():
        pass
    database.close()


def test_a_spool_that_could_not_write_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether nothing or a part of a record went to the disk."""
    written = Spool(tmp_path)
    written.append(b"before", kind=Kind.STARTED)
    real = os.write
    for part in (0, 1, 20):

        def short(file: int, content: bytes, part: int = part) -> int:
            if part == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(file, content[:part])

        with monkeypatch.context() as patched:
            patched.setattr(os, "write", short)
            with pytest.raises(OSError, match=r"(?i)disk full|no space"):
                written.append(b"lost", kind=Kind.STARTED)
    written.append(b"after", kind=Kind.STARTED)
    written.close()

    again = Spool(tmp_path)
    assert [(one.number, one.payload) for one in again.entries()] == [(1, b"before"), (2, b"after")]
    again.close()


def test_a_worker_on_a_full_disk_takes_no_session_and_loses_no_record(tmp_path: Path) -> None:
    """A process whose files may not grow beyond 64 KiB, by the kernel's own bound."""
    program = [sys.executable, "-m", "tests.hostile.full_disk", str(tmp_path)]
    ran = subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr[-3000:]

    plane = MemoryControlPlane(desired(generation=1, flags={"fused_allreduce": "nccl"}))
    with agent(tmp_path, plane=plane) as worker:
        assert plane.state is not None
        worker.on_desired(plane.state)
    lives: dict[str, list[int]] = {}
    for incarnation, told in plane.records:
        lives.setdefault(incarnation, []).append(told.seq)
    (seqs, *_) = lives.values()
    assert seqs == list(range(1, len(seqs) + 1)), "numbers without a gap: no record is half"
    started, ended = ran.stdout.split()
    kinds = [type(told).__name__ for _, told in plane.records]
    assert kinds.count("SessionStarted") == int(started)
    assert kinds.count("SessionEnded") == int(started), "those that ended, and one for each other"
    assert 0 < int(ended) <= int(started)
