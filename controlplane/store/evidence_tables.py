"""The tables of what was received: sessions, memory and breaker trips, and their counts by day."""

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    Table,
)
from sqlalchemy import text as sql

from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.store.columns import (
    METADATA,
    at,
    count,
    identifier,
    json_value,
    of_canary,
    of_fleet,
    of_worker,
    one_of,
    stratum,
    text,
    truth,
    word,
)


def _session() -> tuple[Column[Any], ...]:
    return (
        of_worker(),
        identifier("incarnation", ForeignKey("incarnations.id")),
        of_fleet(),
        *stratum(),
        identifier("canary", nullable=True),  # as the worker names it
        word("arm", nullable=True),
        json_value("flags"),
        count("first_forward_length"),
        truth("is_synthetic"),
        count("seq"),
        count("generation"),
        at("started_at"),  # receipt of its first record
        at("updated_at"),  # receipt of its newest
        count("num_frames"),
        count("num_first_chunk_frames"),
        Column("streamed_s", Float, nullable=False),
        Column("viewer_wait_s", Float, nullable=False),
        count("num_late_chunks"),
        Column("longest_stall_ms", Float, nullable=False),
        count("worst_second_frames", nullable=True),
        count("num_steps"),
        count("num_non_compliant_steps"),
        Column("diffusion_ms_mean", Float),
        Column("reduce_ms_mean", Float),
        Column("decoder_ms_mean", Float),
        Column("encode_ms_mean", Float),
    )


live_sessions = Table(
    "live_sessions",
    METADATA,
    identifier("id", primary_key=True),
    *_session(),
    one_of("outcome", Outcome, nullable=True),
    one_of("reason", Reason, nullable=True),
    text("detail"),
    at("ended_at", nullable=True, index=True),
    one_of("late_outcome", Outcome, nullable=True),  # came after `lost`: kept, not applied
    Index(
        "ix_live_sessions_open",
        "worker_id",
        sqlite_where=sql("outcome IS NULL"),
        postgresql_where=sql("outcome IS NULL"),
    ),
    Index("ix_live_sessions_stratum", "fleet_id", "hardware", "stack", "started_at"),
)
sessions = Table(
    "sessions",
    METADATA,
    word("week"),
    identifier("id", index=True),
    *_session(),
    one_of("outcome", Outcome),
    one_of("reason", Reason, nullable=True),
    text("detail"),
    at("ended_at"),
    truth("is_mixed"),
    PrimaryKeyConstraint("week", "id"),
    Index("ix_sessions_stratum", "fleet_id", "hardware", "stack", "started_at"),
    Index(None, "worker_id", "started_at"),
)
session_segments = Table(
    "session_segments",
    METADATA,
    identifier("session_id"),
    count("position"),
    json_value("flags"),
    count("num_frames"),
    Column("streamed_s", Float, nullable=False),
    PrimaryKeyConstraint("session_id", "position"),
)
# What a file said of the past. Apart from `sessions`, so that no judge can take it for evidence.
imported_sessions = Table(
    "imported_sessions",
    METADATA,
    of_fleet(),
    identifier("id"),
    word("worker"),  # a name: whoever streamed it need not be known here
    *stratum(),
    json_value("flags"),
    at("started_at"),  # as the file states it
    at("imported_at"),
    Column("streamed_s", Float, nullable=False),
    count("num_frames", nullable=True),
    Column("fps", Float),
    one_of("outcome", Outcome),
    one_of("reason", Reason, nullable=True),
    count("first_forward_length"),
    truth("is_mixed"),
    truth("is_synthetic"),
    PrimaryKeyConstraint("fleet_id", "id"),
)
session_days = Table(
    "session_days",
    METADATA,
    count("day"),  # since 1970-01-01, in UTC: a number, so that SQL can add days up to weeks
    of_fleet(),
    *stratum(),
    word("variants"),  # digest of `flags`
    truth("is_mixed"),
    truth("is_synthetic"),
    truth("is_imported"),
    json_value("flags"),
    count("num_sessions"),
    count("num_rated"),
    count("num_slow"),
    count("num_very_slow"),
    count("num_failed"),
    count("num_viewer_limited"),
    PrimaryKeyConstraint(
        "day",
        "fleet_id",
        "hardware",
        "stack",
        "variants",
        "is_mixed",
        "is_synthetic",
        "is_imported",
    ),
)
process_windows = Table(
    "process_windows",
    METADATA,
    identifier("incarnation", ForeignKey("incarnations.id"), primary_key=True),
    of_worker(),
    count("seq"),
    at("received_at"),
    count("resident_bytes"),
    count("limit_bytes", nullable=True),
    json_value("flag_bytes"),
    json_value("lengths"),
    count("num_sessions_started"),
    Column("power_w", Float),
    json_value("steps", nullable=True),
    json_value("clamps", nullable=True),
    json_value("gpus", nullable=True),
)
# What has been received, kept for 48 h: a repeat after that merges to the same row, only uncounted.
receipts = Table(
    "receipts",
    METADATA,
    identifier("incarnation"),
    Column("seq", BigInteger, nullable=False),
    at("received_at", index=True),
    PrimaryKeyConstraint("incarnation", "seq"),
)
breaker_trips = Table(
    "breaker_trips",
    METADATA,
    of_worker(),
    identifier("id"),
    identifier("incarnation", ForeignKey("incarnations.id")),
    one_of("reason", Reason),
    json_value("flags"),
    count("generation"),
    count("rank", nullable=True),
    identifier("session", nullable=True),
    identifier("canary", nullable=True),  # as the worker names it
    text("detail"),
    at("at"),
    at("closed_at", nullable=True),
    text("closed_reason", nullable=True),
    PrimaryKeyConstraint("worker_id", "id"),
    Index(None, "worker_id", "at"),
)
# One row a probe: a repeat of its report is no second one.
probe_reports = Table(
    "probe_reports",
    METADATA,
    identifier("id", primary_key=True),
    of_canary(),
    of_worker(),
    identifier("incarnation", ForeignKey("incarnations.id")),
    json_value("lengths"),  # [first-forward length, bytes kept for it], ascending
    count("flag_bytes_before"),
    count("flag_bytes_left", nullable=True),
    Column("rollback_ms", Float),
    one_of("fault", Reason, nullable=True),
    text("detail"),
    at("received_at"),
    Index(None, "canary_id"),
)
# What the gate `quality` judges: a number for a canary's variant, by whoever measures the picture.
quality_reports = Table(
    "quality_reports",
    METADATA,
    identifier("id", primary_key=True),
    of_canary(),
    word("measure"),
    # The bounds of policies. NaN is above every number to PostgreSQL, and nothing at all to SQLite.
    Column(
        "value",
        Float,
        CheckConstraint("value >= -1e6 AND value <= 1e6", name="value_bounded"),
        nullable=False,
    ),
    Column(
        "num_samples",
        BigInteger,
        CheckConstraint("num_samples >= 1", name="num_samples_counts"),
        nullable=False,
    ),
    text("actor", bound=200),
    text("reason"),
    at("received_at"),
    Index(None, "canary_id", "measure", "received_at"),
)
