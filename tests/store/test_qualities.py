"""What was measured of the picture is kept once, and a judge sees the newest of each measure."""

from dataclasses import replace
from datetime import datetime
from math import inf, nan

import pytest
from sqlalchemy.exc import IntegrityError

from controlplane.domain.evidence import QualityEvidence
from controlplane.store import canaries as canary_store
from controlplane.store import evidence as evidence_store
from controlplane.store import qualities as quality_store
from controlplane.store.qualities import QualityReport
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START
from tests.domain.build import seconds


def report(number: int = 1, *, at: datetime = START, value: float = 93.25) -> QualityReport:
    return QualityReport(
        id=f"report-{number}",
        canary_id="canary-1",
        measure="vmaf",
        value=value,
        num_samples=200,
        actor="ada",
        reason="the nightly run",
        received_at=at,
    )


def fill(conn: Connection) -> None:
    build.put_fleet(conn)
    build.put_canary(conn)
    build.put_canary(conn, id="canary-2", name="fused-allreduce-2")


@pytest.fixture
def filled(database: Database) -> Database:
    """A database with two canaries."""
    with database.write() as conn:
        fill(conn)
    return database


def seen(conn: Connection, name: str = "canary-1") -> tuple[QualityEvidence, ...]:
    """What the judge of that canary is shown."""
    canary = canary_store.get(conn, name_or_id=name)
    return evidence_store.of_canary(conn, canary=canary, since=START).qualities


def test_a_report_comes_back_as_it_was_told_and_reaches_the_judge(filled: Database) -> None:
    with filled.write() as conn:
        assert quality_store.put(conn, report(value=0.1 + 0.2))
    with filled.read() as conn:
        assert quality_store.list_page(conn, canary_id="canary-1", after=None, limit=9) == (
            report(value=0.1 + 0.2),
        )
        (one,) = seen(conn)
    assert (one.id, one.measure, one.value) == ("report-1", "vmaf", 0.1 + 0.2)
    assert (one.num_samples, one.received_at) == (200, START)


def test_the_first_report_of_an_id_stays_and_a_repeat_is_told(filled: Database) -> None:
    """What is sent twice must not turn a verdict."""
    with filled.write() as conn:
        assert quality_store.put(conn, report())
        assert not quality_store.put(conn, report(value=1.0))
        assert [one.value for one in seen(conn)] == [93.25]


def test_a_canary_is_judged_on_its_own_reports_the_newest_of_each_measure(
    filled: Database,
) -> None:
    """However often somebody measures, a judgement stays small."""
    with filled.write() as conn:
        for number in range(30):
            at = START + seconds(number % 7)
            quality_store.put(conn, report(number, at=at, value=float(number)))
        quality_store.put(conn, replace(report(98), measure="lpips"))
        quality_store.put(conn, replace(report(99), canary_id="canary-2", value=1.0))
        found = seen(conn)
        other = seen(conn, "canary-2")
    # Of those at the sixth second the last id as text: report-6, before report-27 and the others.
    assert [(one.measure, one.id) for one in found] == [
        ("lpips", "report-98"),
        ("vmaf", "report-6"),
    ]
    assert [one.id for one in other] == ["report-99"]


def test_reports_are_read_in_pages_newest_first(filled: Database) -> None:
    with filled.write() as conn:
        for number in range(1, 6):
            quality_store.put(conn, report(number))
        first = quality_store.list_page(conn, canary_id="canary-1", after=None, limit=2)
        second = quality_store.list_page(conn, canary_id="canary-1", after=first[-1].id, limit=9)
    ids = [one.id for one in (*first, *second)]
    assert ids == ["report-5", "report-4", "report-3", "report-2", "report-1"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": nan},
        {"value": inf},
        {"value": -inf},
        {"value": 1.1e6},
        {"value": -1.1e6},
        {"num_samples": 0},
        {"canary_id": "none"},
    ],
)
def test_the_database_itself_keeps_nothing_that_cannot_be_judged(
    filled: Database, wrong: dict[str, object]
) -> None:
    with pytest.raises(IntegrityError), filled.write() as conn:
        quality_store.put(conn, replace(report(), **wrong))  # type: ignore[arg-type]  # a column each
    with filled.read() as conn:
        assert seen(conn) == ()
