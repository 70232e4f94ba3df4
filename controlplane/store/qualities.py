"""What was measured of the picture under a canary's variant; a report is kept once and stays."""

from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection, false, func, select

from controlplane.domain.evidence import QualityEvidence
from controlplane.store import dialect
from controlplane.store.evidence_tables import quality_reports


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityReport:
    """One value of one measure, and who says so."""

    id: str
    canary_id: str
    measure: str
    value: float  # finite
    num_samples: int  # at least one
    actor: str
    reason: str
    received_at: datetime


def put(conn: Connection, report: QualityReport) -> bool:
    """Keep a report. Returns False if one of its id was kept before: the first one stays.

    The canary must be there.
    """
    return dialect.upsert(conn, quality_reports, asdict(report), where=false()) == 1


def of_canary(conn: Connection, *, canary_id: str) -> tuple[QualityEvidence, ...]:
    """The newest report of each measure, which is all that a gate looks at, by measure.

    So a tool that reports every minute for a week makes no judgement larger.
    """
    age = func.row_number().over(
        partition_by=quality_reports.c.measure,
        order_by=(quality_reports.c.received_at.desc(), quality_reports.c.id.desc()),
    )
    aged = (
        select(quality_reports, age.label("age"))
        .where(quality_reports.c.canary_id == canary_id)
        .subquery()
    )
    rows = conn.execute(select(aged).where(aged.c.age == 1).order_by(aged.c.measure))
    return tuple(
        QualityEvidence(
            id=row.id,
            measure=row.measure,
            value=row.value,
            num_samples=row.num_samples,
            received_at=row.received_at,
        )
        for row in rows
    )


def list_page(
    conn: Connection, *, canary_id: str, after: str | None, limit: int
) -> tuple[QualityReport, ...]:
    """Up to `limit` reports of the canary, newest first.

    Args:
        conn: a connection.
        canary_id: of the canary.
        after: id of the last of the page before; None: the first page.
        limit: at most so many.
    """
    selected = select(quality_reports).where(quality_reports.c.canary_id == canary_id)
    if after is not None:
        selected = selected.where(quality_reports.c.id < after)
    rows = conn.execute(selected.order_by(quality_reports.c.id.desc()).limit(limit))
    return tuple(QualityReport(**row._mapping) for row in rows)  # noqa: SLF001 - a public name of SQLAlchemy's
