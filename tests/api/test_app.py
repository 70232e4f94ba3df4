"""What the composition root puts together: a first start, a second one, health, a real server."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from controlplane import app
from controlplane.settings import Settings
from controlplane.store.transaction import Database
from tests.api.control_plane import FLAG, FLEET, ControlPlane, bearer, control_plane, registration
from tests.clock import CountingId, FakeClock

SERVE = """
import sys
from pathlib import Path
from controlplane import app
from controlplane.settings import Settings
app.serve(Settings(state_dir=Path(sys.argv[1]), port=0, tick_s=0.2, hold_s=45, hold_jitter_s=0))
"""


def test_a_second_start_changes_nothing(
    sqlite_database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> None:
    """A restart is no event: the same token, no policy twice, no audit row."""
    seen = []
    for _ in range(2):
        with control_plane(sqlite_database, tmp_path, clock=clock, new_id=new_id) as plane:
            seen.append((plane.admin, plane.get("/v1/policies"), plane.get("/v1/audit")))

    assert seen[0] == seen[1]


def test_a_token_file_that_opens_nothing_is_replaced(
    sqlite_database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> None:
    """The database was removed and the file was not."""
    (tmp_path / app.ADMIN_TOKEN_FILE).write_text("sf_from-another-life")

    with control_plane(sqlite_database, tmp_path, clock=clock, new_id=new_id) as plane:
        assert plane.get("/v1/fleets")["items"] == []
        assert (tmp_path / app.ADMIN_TOKEN_FILE).stat().st_mode & 0o777 == 0o600


def test_an_uploaded_policy_stays_the_newest_over_a_restart(
    sqlite_database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> None:
    with control_plane(sqlite_database, tmp_path, clock=clock, new_id=new_id) as plane:
        document = plane.get("/v1/policies/demo")["document"]
        clock.advance(minutes=1)
        made = plane.done("/v1/policies", document=json.dumps({**document, "summary": "Ours."}))
        clock.advance(minutes=1)

    with control_plane(sqlite_database, tmp_path, clock=clock, new_id=new_id) as plane:
        assert plane.get("/v1/policies/demo")["digest"] == made["digest"]


def test_ready_means_that_the_database_answers_and_canaries_are_judged(
    sqlite_database: Database, tmp_path: Path, clock: FakeClock, new_id: CountingId
) -> None:
    with control_plane(sqlite_database, tmp_path, clock=clock, new_id=new_id) as plane:
        judging = plane.parts.context.settings.model_copy(update={"is_reconciling": True})
        plane.parts.app.state.context = replace(plane.parts.context, settings=judging)
        answers = []
        for _ in range(2):
            plane.tick()
            clock.advance(seconds=60)
            answers.append(plane.client.get("/readyz").status_code)
            clock.advance(seconds=1)
            answers.append(plane.client.get("/readyz").status_code)
        assert plane.client.get("/livez").status_code == 200

    assert answers == [200, 503, 200, 503]


def test_a_database_without_our_schema_is_not_ready(
    sqlite_plane: ControlPlane, tmp_path: Path
) -> None:
    empty = Database.open(f"sqlite:///{tmp_path}/empty.db")
    context = replace(sqlite_plane.parts.context, database=empty)
    sqlite_plane.parts.app.state.context = context

    answer = sqlite_plane.client.get("/readyz")
    empty.close()

    assert (answer.status_code, answer.json()["checks"]["database"]) == (503, False)


def test_answers_are_kept_by_no_cache(sqlite_plane: ControlPlane) -> None:
    headers = sqlite_plane.client.get("/v1/fleets", headers=sqlite_plane.admin).headers

    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


def test_settings_name_a_database_or_get_a_file(tmp_path: Path) -> None:
    database = app.opened(Settings(state_dir=tmp_path / "new" / "state"))

    assert database.url.endswith("/new/state/steadyframe.db")
    database.close()


@contextmanager
def _server(state_dir: Path) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(state_dir)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        # Ends at the event or with the process, whose end closes the pipe.
        lines = iter(process.stderr.readline, "")
        url = next(json.loads(line)["url"] for line in lines if "server_started" in line)
        drained = threading.Thread(target=process.stderr.read)
        drained.start()
        with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
            yield process, client
        process.send_signal(signal.SIGINT)
        drained.join(30)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(30)
        process.stderr.close()


def test_a_held_call_ends_with_the_change_and_with_the_server(tmp_path: Path) -> None:
    """One real server: a change wakes the call that waits for it, a stop lets the last one go."""
    with _server(tmp_path) as (process, client):
        address = json.loads((tmp_path / app.ADDRESS_FILE).read_text())
        assert address["url"] == str(client.base_url).rstrip("/")
        admin = bearer((tmp_path / app.ADMIN_TOKEN_FILE).read_text().strip())
        worker = bearer(_fleet_with_worker(client, admin))
        path = f"/v1/fleets/{FLEET}/workers/w-1"
        held: list[Any] = []

        def ask(after: int) -> threading.Thread:
            params: dict[str, Any] = {"after": after, "incarnation": "life-of-w-1"}

            def hold() -> None:
                held.append(client.get(f"{path}/desired", params=params, headers=worker).json())

            thread = threading.Thread(target=hold)
            thread.start()
            return thread

        first = ask(after=1)
        pin = {"flag": FLAG, "variant": "fused_steady", "reason": "a test"}
        assert client.post(f"{path}/pins", json=pin, headers=admin).status_code == 200
        first.join(30)
        before = _seen_at(client, path, admin)
        second = ask(after=2)
        _until_heard(client, path, admin, before=before)
        process.send_signal(signal.SIGTERM)
        second.join(30)
        process.wait(30)

    assert [one["generation"] for one in held] == [2, 2]
    assert process.returncode == 0
    assert not (tmp_path / app.ADDRESS_FILE).exists()


def _fleet_with_worker(client: httpx.Client, admin: dict[str, str]) -> str:
    """The token of a worker that has registered in a fleet that enforces."""
    client.post("/v1/fleets", json={"name": FLEET, "reason": "a test"}, headers=admin)
    mode = {"mode": "enforce", "reason": "a test"}
    client.post(f"/v1/fleets/{FLEET}/mode", json=mode, headers=admin)
    grant = {"role": "worker", "fleet": FLEET, "worker": "w-1", "reason": "a test"}
    token: str = client.post("/v1/tokens", json=grant, headers=admin).json()["token"]
    path = f"/v1/fleets/{FLEET}/workers/w-1/registration"
    answer = client.post(path, json=registration("w-1"), headers=bearer(token))
    assert answer.status_code == 200, answer.text
    return token


def _until_heard(client: httpx.Client, path: str, admin: dict[str, str], *, before: str) -> None:
    """Wait until the server has heard the worker again since `before`."""
    for _ in range(1000):
        if _seen_at(client, path, admin) != before:
            return
    pytest.fail("the held call never arrived")


def _seen_at(client: httpx.Client, path: str, admin: dict[str, str]) -> str:
    seen: str = client.get(path, headers=admin).json()["last_seen_at"]
    return seen
