"""Sessions and memory as the pages show them: few rows, newest first, never more than asked for."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Table, select

from controlplane.contract.telemetry import Clamps, GpuReading, StepTimes
from controlplane.contract.vocabulary import ARM_CANARY, Outcome
from controlplane.domain.canary import Canary
from controlplane.store import session_row
from controlplane.store.evidence_tables import live_sessions, process_windows, sessions
from controlplane.store.tables import fleets, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """One session at a glance."""

    id: str
    worker: str
    arm: str | None
    flags: Mapping[str, str]
    first_forward_length: int
    started_at: datetime
    updated_at: datetime
    outcome: Outcome | None  # None: it runs
    reason: str | None
    fps: float | None
    streamed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """What the newest process window of one incarnation says."""

    received_at: datetime
    resident_bytes: int
    limit_bytes: int | None
    flag_bytes: Mapping[str, int]
    lengths: tuple[tuple[int, int], ...]  # first-forward length, bytes kept for it
    power_w: float | None
    steps: StepTimes | None
    clamps: Clamps | None
    gpus: tuple[GpuReading, ...] | None


def recent(
    conn: Connection, *, fleet: str, worker: str | None = None, limit: int
) -> tuple[SessionView, ...]:
    """Sessions that run or ended lately, in the fleet or on one worker, newest first."""
    chosen = _of(live_sessions).where(fleets.c.name == fleet)
    if worker is not None:
        chosen = chosen.where(workers.c.name == worker)
    rows = conn.execute(chosen.order_by(live_sessions.c.started_at.desc()).limit(limit))
    return tuple(_view(row) for row in rows)


def of_arms(
    conn: Connection, canary: Canary, *, until: datetime, limit: int
) -> tuple[SessionView, ...]:
    """Sessions of the canary's arm and beside it, while it ran; at most `limit` of each, newest."""
    chosen = (
        _of(sessions)
        .where(
            fleets.c.name == canary.fleet,
            sessions.c.hardware == canary.hardware,
            sessions.c.stack == canary.stack,
            sessions.c.started_at.between(canary.created_at, until),
        )
        .order_by(sessions.c.started_at.desc())
        .limit(limit)
    )
    is_arm = (sessions.c.canary == canary.id) & (sessions.c.arm == ARM_CANARY)
    rows = [
        *conn.execute(chosen.where(is_arm)),
        *conn.execute(chosen.where(sessions.c.canary.is_(None) | ~is_arm)),
    ]
    return tuple(_view(row) for row in rows)


def process(conn: Connection, *, incarnation: str) -> ProcessView | None:
    """The newest process window of the incarnation; None before its first."""
    known = process_windows.c.incarnation == incarnation
    row = conn.execute(select(process_windows).where(known)).first()
    if row is None:
        return None
    return ProcessView(
        received_at=row.received_at,
        resident_bytes=row.resident_bytes,
        limit_bytes=row.limit_bytes,
        flag_bytes=row.flag_bytes,
        lengths=tuple((length, kept) for length, kept in row.lengths),
        power_w=row.power_w,
        steps=StepTimes.model_validate(row.steps) if row.steps else None,
        clamps=Clamps.model_validate(row.clamps) if row.clamps else None,
        gpus=None
        if row.gpus is None
        else tuple(GpuReading.model_validate(gpu) for gpu in row.gpus),
    )


def _of(table: Table) -> Any:
    return (
        select(table, workers.c.name.label("worker"))
        .join_from(table, workers, table.c.worker_id == workers.c.id)
        .join(fleets, table.c.fleet_id == fleets.c.id)
    )


def _view(row: Any) -> SessionView:
    session = session_row.from_row(row)
    return SessionView(
        id=session.id,
        worker=row.worker,
        arm=session.arm,
        flags=session.flags,
        first_forward_length=session.first_forward_length,
        started_at=session.started_at,
        updated_at=session.updated_at,
        outcome=session.outcome,
        reason=session.reason,
        fps=session.fps,
        streamed_s=session.streamed_s,
    )
