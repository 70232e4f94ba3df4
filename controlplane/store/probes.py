"""What workers measured in preflight; a probe is answered once."""

from datetime import datetime

from sqlalchemy import Connection, false, select

from controlplane.contract.messages import ProbeReport
from controlplane.contract.vocabulary import Reason
from controlplane.domain.evidence import ProbeEvidence
from controlplane.store import dialect
from controlplane.store.evidence_tables import probe_reports
from controlplane.store.tables import workers


def insert(conn: Connection, *, worker_id: str, report: ProbeReport, now: datetime) -> bool:
    """Keep what came of a probe. Returns False if it was answered before: the first answer stays.

    The canary and the incarnation must be there.
    """
    row = {
        "id": report.probe,
        "canary_id": report.canary,
        "worker_id": worker_id,
        "incarnation": report.incarnation,
        "lengths": [[one.length, one.retained_bytes] for one in report.lengths],
        "flag_bytes_before": report.flag_bytes_before,
        "flag_bytes_left": report.flag_bytes_left,
        "rollback_ms": report.rollback_ms,
        "fault": report.fault and report.fault.value,
        "detail": report.detail,
        "received_at": now,
    }
    return dialect.upsert(conn, probe_reports, row, where=false()) == 1


def of_canary(conn: Connection, *, canary_id: str) -> tuple[ProbeEvidence, ...]:
    """Every answer to a probe of the canary, oldest first."""
    rows = conn.execute(
        select(probe_reports, workers.c.name.label("worker"))
        .join_from(probe_reports, workers)
        .where(probe_reports.c.canary_id == canary_id)
        .order_by(probe_reports.c.received_at, probe_reports.c.id)
    )
    return tuple(
        ProbeEvidence(
            id=row.id,
            worker=row.worker,
            incarnation=row.incarnation,
            received_at=row.received_at,
            lengths=dict(row.lengths),
            flag_bytes_before=row.flag_bytes_before,
            rollback_ms=row.rollback_ms,
            flag_bytes_left=row.flag_bytes_left,
            fault=Reason(row.fault) if row.fault else None,
            detail=row.detail,
        )
        for row in rows
    )
