"""Which records have been received, and what the newest of each process says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, case, delete, select, update

from controlplane.contract.records import ProcessWindow
from controlplane.store import dialect
from controlplane.store.evidence_tables import process_windows, receipts
from controlplane.store.tables import fleets, incarnations, workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One incarnation of a worker, as far as its records need to fit it."""

    id: str
    worker_id: str
    fleet_id: str
    hardware: str
    stack: str
    is_present: bool  # not yet followed by another


def locked_lives(
    conn: Connection, *, fleet: str, worker: str, named: Iterable[str]
) -> Mapping[str, Life]:
    """Those of the incarnations `named` that are the worker's, by id; holds the worker's row."""
    found = (
        select(incarnations, workers.c.fleet_id, workers.c.incarnation.label("present"))
        .join_from(incarnations, workers)
        .join(fleets)
        .where(fleets.c.name == fleet, workers.c.name == worker)
        .where(incarnations.c.id.in_(sorted(set(named))))
    )
    return {
        row.id: Life(
            id=row.id,
            worker_id=row.worker_id,
            fleet_id=row.fleet_id,
            hardware=row.hardware,
            stack=row.stack,
            is_present=row.id == row.present,
        )
        for row in conn.execute(dialect.lock_row(conn, found, of=workers))
    }


def insert_new(
    conn: Connection, keys: Iterable[tuple[str, int]], *, now: datetime
) -> frozenset[tuple[str, int]]:
    """Record that these (incarnation, seq) were received. Returns those that are new."""
    rows = [
        {"incarnation": incarnation, "seq": seq, "received_at": now}
        for incarnation, seq in sorted(set(keys))
    ]
    return dialect.insert_new(conn, receipts, rows)


def count(
    conn: Connection, life: Life, *, num_records: int, highest_seq: int, now: datetime
) -> None:
    """Record that `num_records` new ones of the incarnation came at `now`."""
    is_higher = incarnations.c.highest_seq < highest_seq
    changed = {
        "num_records": incarnations.c.num_records + num_records,
        "highest_seq": case((is_higher, highest_seq), else_=incarnations.c.highest_seq),
        "last_record_at": now,
    }
    conn.execute(update(incarnations).where(incarnations.c.id == life.id).values(changed))
    if life.is_present:
        # What a dead process left in its spool says nothing of how fresh the present one is.
        known = workers.c.id == life.worker_id
        conn.execute(update(workers).where(known).values(last_record_at=now))


def put_process_window(
    conn: Connection, life: Life, window: ProcessWindow, *, now: datetime
) -> None:
    """Keep `window` if it is the newest of its incarnation."""
    told = window.model_dump(mode="json", include={"steps", "clamps", "gpus"})
    row: dict[str, Any] = {
        "incarnation": life.id,
        "worker_id": life.worker_id,
        "seq": window.seq,
        "received_at": now,
        "resident_bytes": window.resident_bytes,
        "limit_bytes": window.limit_bytes,
        "flag_bytes": dict(window.flag_bytes),
        "lengths": [[one.length, one.retained_bytes] for one in window.lengths],
        "num_sessions_started": window.num_sessions_started,
        "power_w": window.power_w,
        **told,
    }
    dialect.upsert(conn, process_windows, row, where=process_windows.c.seq < window.seq)


def forget(conn: Connection, *, before: datetime) -> int:
    """Drop receipts from before then: a repeat of theirs does no harm. Returns how many."""
    return conn.execute(delete(receipts).where(receipts.c.received_at < before)).rowcount
