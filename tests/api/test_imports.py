"""Imported sessions: all of a table or none, once, in reports and never before a judge."""

from typing import Any

import pytest
from sqlalchemy import func, select

from controlplane.domain.errors import ConflictError
from controlplane.services import workers as worker_service
from controlplane.store import evidence as evidence_store
from controlplane.store.evidence_tables import imported_sessions, session_days
from controlplane.store.transaction import Database
from tests import build
from tests.api.control_plane import FLAG, FLEET, STACK, ControlPlane
from tests.clock import START, CountingId

PATH = "/v1/imports/sessions"
GOOD = {
    "session": "s-1",
    "started_at": "2026-10-08T01:00:00+02:00",
    "worker": "worker-9",
    "hardware": "cpu",
    "stack": ";".join(f"{name}={value}" for name, value in STACK.items()),
    "flags": f"{FLAG}=nccl",
    "streamed_s": "10",
    "outcome": "completed",
    "fps": "24.0",
}


def table(*changes: dict[str, str], fleet: str = FLEET, **more: Any) -> dict[str, Any]:
    """Rows like GOOD, the first on line 2."""
    rows = [{**GOOD, "session": f"s-{number}", **one} for number, one in enumerate(changes)]
    return {
        "fleet": fleet,
        "columns": list(GOOD),
        "lines": list(range(2, len(rows) + 2)),
        "rows": [list(row.values()) for row in rows],
        **more,
    }


def test_sessions_stand_in_the_report_by_their_own_start(plane: ControlPlane) -> None:
    """Their week is that of their start in UTC, whenever they are imported."""
    plane.fleet()
    answer = plane.done(PATH, **table({}, {"fps": "24.1"}, {"fps": "23.5"}, {"streamed_s": "0.9"}))
    assert (answer["num_imported"], answer["num_known"]) == (4, 0)
    (row,) = plane.get("/v1/reports/weekly?anchor=2026-10-08")["items"]
    assert (row["week"], row["is_imported"], row["flags"]) == ("2026-10-01", True, {FLAG: "nccl"})
    assert (row["num_sessions"], row["num_rated"]) == (4, 3)
    assert (row["num_slow"], row["num_very_slow"]) == (2, 1)


def test_the_same_table_twice_is_imported_once(plane: ControlPlane) -> None:
    """Who is not sure whether it went through sends it again."""
    plane.fleet()
    plane.done(PATH, **table({}, {}))
    again = plane.done(PATH, **table({}, {"fps": "23.0"}, {}))
    assert (again["num_imported"], again["num_known"]) == (1, 2)
    (row,) = plane.get("/v1/reports/weekly")["items"]
    assert (row["num_sessions"], row["num_very_slow"]) == (3, 0)


def test_one_bad_row_and_nothing_is_imported(plane: ControlPlane) -> None:
    """Half a table would have to be told apart by hand."""
    plane.fleet()
    answer = plane.post(PATH, **table({}, {"outcome": "fine"}, {"flags": f"{FLAG}=fast"}))
    assert answer.status_code == 422
    problem = answer.json()
    assert [(bad["line"], bad["key"], bad["value"]) for bad in problem["bad"]] == [
        (3, "outcome", "fine"),
        (4, "flags", f"{FLAG}=fast"),
    ]
    assert "completed" in problem["bad"][0]["allowed"]
    assert plane.get("/v1/reports/weekly")["items"] == []


def test_the_judge_never_sees_an_imported_session(database: Database, plane: ControlPlane) -> None:
    """Same fleet, hardware, stack, worker and time: a file must not promote or roll back."""
    with database.write() as conn:
        build.put_fleet(conn)
        build.put_worker(conn)
        canary = build.put_canary(conn)
    row = {"hardware": build.HARDWARE, "worker": build.WORKER, "stack": build.STACK}
    at = {"started_at": START.isoformat(), "outcome": "failed"}
    before = _evidence(database, canary)
    plane.done(PATH, **table({**row, **at}, {**row, **at}, fleet=build.FLEET))
    assert _evidence(database, canary) == before
    with database.read() as conn:
        assert conn.scalar(select(func.count()).select_from(imported_sessions)) == 2


def test_a_rehearsal_imports_nothing(plane: ControlPlane, database: Database) -> None:
    plane.fleet()
    answer = plane.post(f"{PATH}?dry_run=true", **table({}))
    assert "1 sessions from 2026-10-07 to 2026-10-07" in answer.json()["effects"][0]
    with database.read() as conn:
        assert conn.execute(select(session_days)).all() == []


def test_a_sample_fleet_is_marked_and_neither_enforces_nor_takes_workers(
    plane: ControlPlane, database: Database
) -> None:
    """Made-up sessions must not be mistaken for a fleet, by anybody or anything."""
    plane.done(PATH, **table({}, fleet="sample", is_sample=True))
    plane.done(PATH, **table({}, {}, fleet="sample", is_sample=True))
    assert plane.get("/v1/fleets/sample")["is_sample"] is True
    assert plane.get("/v1/reports/weekly?fleet=sample")["items"][0]["is_sample"] is True
    refused = plane.post("/v1/fleets/sample/mode", mode="enforce")
    assert (refused.status_code, "sample data" in refused.text) == (409, True)
    registration = build.registration(fleet="sample")
    with database.write() as conn, pytest.raises(ConflictError, match="takes no workers"):
        worker_service.register(conn, registration, now=START, new_id=CountingId())


def test_made_up_and_real_sessions_are_kept_apart(plane: ControlPlane) -> None:
    plane.fleet()
    assert plane.post(PATH, **table({}, is_sample=True)).status_code == 409
    plane.done(PATH, **table({}, fleet="sample", is_sample=True))
    assert plane.post(PATH, **table({}, fleet="sample")).status_code == 409
    assert plane.post(PATH, **table({}, fleet="nowhere")).status_code == 404


def test_only_an_operator_of_the_fleet_imports(plane: ControlPlane) -> None:
    plane.fleet()
    for role, fleet in (("viewer", None), ("operator", "other")):
        if fleet:
            plane.done("/v1/fleets", name=fleet)
        token = plane.token(role, fleet=fleet)
        assert plane.post(PATH, token=token, **table({})).status_code == 403
    assert "sessions.imported" not in plane.audit()


def test_lines_and_rows_belong_together(plane: ControlPlane) -> None:
    plane.fleet()
    assert plane.post(PATH, **{**table({}, {}), "lines": [2]}).status_code == 422


def _evidence(database: Database, canary: Any) -> Any:
    with database.read() as conn:
        return evidence_store.of_canary(conn, canary=canary, since=canary.created_at)
