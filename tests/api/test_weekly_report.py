"""The weekly report: a recount of the sessions, whatever day its weeks begin on."""

import csv
import io
import random
from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from controlplane.contract.vocabulary import Outcome
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.weeks import FIRST_DAY, LAST_DAY
from controlplane.services import ingest, weekly
from controlplane.services.weekly import Asked
from controlplane.store import rollups
from controlplane.store.evidence_tables import sessions
from controlplane.store.transaction import Database
from tests import build
from tests.api.control_plane import ControlPlane
from tests.clock import START

DAYS = st.dates(min_value=FIRST_DAY, max_value=LAST_DAY)
WHOLE = Asked(since=date(2026, 1, 1), until=date(2027, 12, 31))


@pytest.fixture
def filled(database: Database) -> Database:
    """Two fleets whose sessions lie weeks apart, some synthetic, some mixed."""
    rng = random.Random(3)
    for fleet, worker in (("main", "worker-1"), ("other", "worker-2")):
        with database.write() as conn:
            build.put_fleet(conn, name=fleet)
            build.put_worker(conn, worker, fleet=fleet)
        for number in range(60):
            told = build.received(
                _ended(rng, f"{fleet}-{number}", seq=number + 1),
                incarnation=f"incarnation-{worker}",
            )
            now = START + timedelta(hours=rng.randrange(24 * 60))
            identity = ingest.Writer(fleet=fleet, worker=worker)
            ingest.ingest_logs(database, identity=identity, records=[told], now=now)
    return database


def test_the_report_equals_a_recount_for_any_anchor(filled: Database) -> None:
    """Sums of days must be the weeks a person would count by hand."""
    with filled.read() as conn:
        stored = conn.execute(select(sessions)).all()

        @settings(suppress_health_check=[HealthCheck.nested_given], max_examples=25)
        @given(st.none() | DAYS)
        def check(anchor: date | None) -> None:
            report = weekly.weekly(conn, replace(WHOLE, anchor=anchor), now=START)
            assert {_key(row): _counts(row) for row in report.rows} == _recounted(stored, anchor)

        check()


@pytest.mark.parametrize("anchor", [None, date(2026, 10, 8)])
def test_totals_leave_out_synthetic_sessions_alone(filled: Database, anchor: date | None) -> None:
    """What viewers had, whatever the worker ran and whether it changed meanwhile."""
    with filled.read() as conn:
        report = weekly.weekly(conn, replace(WHOLE, anchor=anchor), now=START)
    watched: dict[tuple[str, str], Counter[str]] = {}
    for row in report.rows:
        if not row["is_synthetic"]:
            key = (row["week"], row["fleet"])
            watched.setdefault(key, Counter()).update({n: row[n] for n in rollups.COUNTS})
    assert {(t["week"], t["fleet"]): _counts(t) for t in report.totals} == {
        key: tuple(counts[name] for name in rollups.COUNTS) for key, counts in watched.items()
    }


@given(since=st.none() | DAYS, until=st.none() | DAYS, anchor=st.none() | DAYS)
def test_any_dates_are_answered_with_whole_weeks_or_refused(
    since: date | None, until: date | None, anchor: date | None
) -> None:
    """No combination of dates is a fault of ours."""
    asked = Asked(since=since, until=until, anchor=anchor)
    newest = date(2026, 10, 8)
    try:
        first, last = weekly.period(asked, newest=newest)
    except InvalidValueError:
        return
    assert (last - first).days % 7 == 6
    assert since is None or first <= since
    assert until is None or first <= until <= last


class TestOverHttp:
    """GET /v1/reports/weekly and its CSV."""

    @pytest.fixture
    def reporting(self, filled: Database, plane: ControlPlane) -> ControlPlane:
        del filled  # the same database
        return plane

    def test_an_anchored_report_names_its_weeks_by_their_first_day(
        self, reporting: ControlPlane
    ) -> None:
        report = reporting.get("/v1/reports/weekly?anchor=2026-10-08&fleet=main")
        assert report["anchor"] == "2026-10-08"
        first = report["items"][0]
        assert (first["week"], first["starts_on"], first["ends_on"]) == (
            "2026-10-08",
            "2026-10-08",
            "2026-10-14",
        )
        assert {row["fleet"] for row in report["items"]} == {"main"}
        assert 0 <= first["slow_interval"][0] <= first["slow_rate"] <= first["slow_interval"][1]

    def test_from_and_to_bound_the_weeks_and_show_them_whole(self, reporting: ControlPlane) -> None:
        report = reporting.get("/v1/reports/weekly?from=2026-10-21&to=2026-10-28")
        assert (report["from"], report["to"]) == ("2026-10-19", "2026-11-01")
        assert {row["week"] for row in report["items"]} == {"2026-W43", "2026-W44"}

    @pytest.mark.parametrize(
        "query", ["anchor=yesterday", "from=2026-13-01", "to=1", "from=2026-10-08&to=2026-09-01"]
    )
    def test_a_date_that_is_none_is_refused_by_its_key(
        self, reporting: ControlPlane, query: str
    ) -> None:
        answer = reporting.client.get(f"/v1/reports/weekly?{query}", headers=reporting.admin)
        assert answer.status_code == 422
        assert answer.json()["key"] == query.partition("=")[0]

    def test_a_token_of_one_fleet_sees_that_fleet(self, reporting: ControlPlane) -> None:
        token = reporting.token("viewer", fleet="other")
        for path in ("/v1/reports/weekly", "/v1/reports/weekly.csv"):
            bearer = {"Authorization": f"Bearer {token}"}
            assert reporting.client.get(f"{path}?fleet=main", headers=bearer).status_code == 403
            text = reporting.client.get(path, headers=bearer).text
            assert "other" in text
            assert "main" not in text

    def test_the_csv_has_the_rows_of_the_report(self, reporting: ControlPlane) -> None:
        query = "?anchor=2026-10-08"
        rows = reporting.get(f"/v1/reports/weekly{query}")["items"]
        answer = reporting.client.get(f"/v1/reports/weekly.csv{query}", headers=reporting.admin)
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        table = list(csv.DictReader(io.StringIO(answer.text, newline="")))
        assert [(line["week"], line["fleet"], int(line["num_slow"])) for line in table] == [
            (row["week"], row["fleet"], row["num_slow"]) for row in rows
        ]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@sum", "\tx", "\rx"])
def test_no_cell_of_the_csv_is_a_formula(text: str) -> None:
    """What a worker calls itself must not run on the machine of whoever opens the report."""
    row = {
        **dict.fromkeys(rollups.COUNTS, 1),
        **dict.fromkeys(("is_sample", "is_mixed", "is_synthetic", "is_imported"), False),
        **dict.fromkeys((f"{name}_rate" for name in ("slow", "very_slow", "failure")), 0.5),
        **dict.fromkeys((f"{name}_interval" for name in ("slow", "very_slow", "failure")), None),
        "week": "2026-W41",
        "starts_on": date(2026, 10, 5),
        "ends_on": date(2026, 10, 11),
        "fleet": text,
        "hardware": text,
        "stack": text,
        "flags": {text: text},
    }
    day = date(2026, 10, 5)
    report = weekly.Report(anchor=None, since=day, until=day, rows=[row], totals=[])
    (_, line) = csv.reader(io.StringIO(weekly.as_csv(report), newline=""))
    assert not [cell for cell in line if cell.startswith(("=", "+", "-", "@", "\t", "\r"))]
    assert f"'{text}" in line


def _ended(rng: random.Random, session: str, *, seq: int) -> Any:
    streamed_s = rng.choice([0.5, 1.0, 10.0])
    return build.ended(
        session,
        seq=seq,
        streamed_s=streamed_s,
        num_frames=4 + int(streamed_s * rng.choice([23, 23.5, 24, 24.5])),
        outcome=rng.choice([Outcome.COMPLETED, Outcome.FAILED, Outcome.VIEWER_LIMITED]),
        flags={build.FLAG: rng.choice([build.PLAIN, build.FUSED])},
        is_synthetic=rng.random() < 0.3,
        segments=[
            build.segment(build.PLAIN, num_frames=1),
            build.segment(build.FUSED, num_frames=1),
        ]
        if rng.random() < 0.3
        else [],
    )


def _key(row: Any) -> tuple[Any, ...]:
    names = ("starts_on", "hardware", "is_mixed", "is_synthetic")
    return (row["fleet"], row["flags"][build.FLAG], *(row[name] for name in names))


def _counts(row: Any) -> tuple[int, ...]:
    return tuple(row[name] for name in rollups.COUNTS)


def _recounted(stored: Any, anchor: date | None) -> dict[tuple[Any, ...], tuple[int, ...]]:
    """From the definitions alone, a session at a time."""
    counts: dict[tuple[Any, ...], Counter[str]] = {}
    for row in stored:
        day = _in_utc(row.started_at)
        start = day - timedelta(days=day.weekday() if anchor is None else (day - anchor).days % 7)
        fleet = row.fleet_id.removeprefix("fleet-")
        kind = (start, row.hardware, row.is_mixed, row.is_synthetic)
        count = counts.setdefault((fleet, row.flags[build.FLAG], *kind), Counter())
        fps = (row.num_frames - row.num_first_chunk_frames) / row.streamed_s
        is_rated = row.outcome == "completed" and row.streamed_s >= 1
        count["num_sessions"] += 1
        count["num_rated"] += is_rated
        count["num_slow"] += is_rated and fps <= 24.0
        count["num_very_slow"] += is_rated and fps <= 23.5
        count["num_failed"] += row.outcome == "failed"
        count["num_viewer_limited"] += row.outcome == "viewer_limited"
    return {key: tuple(count[name] for name in rollups.COUNTS) for key, count in counts.items()}


def _in_utc(moment: datetime) -> date:
    return moment.astimezone(UTC).date()
