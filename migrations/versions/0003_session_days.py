"""Counts of sessions by day, imported sessions, and fleets of sample data.

Days add up to weeks that begin on any day, ISO weeks among them, so `session_rollups` goes. A
process of the release before that still runs meanwhile cannot count past the new table: what it is
sent fails, stays in the workers' spools and is taken in by this release.
"""

import hashlib
import json
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0003"
down_revision = "0002"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(JSONB(), "postgresql")
COUNTS = (
    "num_sessions",
    "num_rated",
    "num_slow",
    "num_very_slow",
    "num_failed",
    "num_viewer_limited",
)
_DAY = {
    "sqlite": "started_at / 86400000000",
    "postgresql": "CAST(floor(extract(epoch FROM started_at) / 86400) AS bigint)",
}
_FPS = "CAST(num_frames - num_first_chunk_frames AS double precision) / streamed_s"
_RATED = "outcome = 'completed' AND streamed_s >= 1.0 AND num_frames >= num_first_chunk_frames"
_OUTCOMES = "outcome IN ('completed', 'failed', 'lost', 'viewer_limited')"
_REASONS = (
    "reason IN ('out_of_memory', 'nan', 'rank_disagreement', 'rank_died', 'rank_hung',"
    " 'process_lost', 'underrun', 'lease_lapsed', 'break_glass', 'drained')"
)


def upgrade() -> None:
    """Make the tables, and count the sessions that there are."""
    _mark_samples()
    _make_imported_sessions()
    _make_session_days()
    _count_sessions()
    op.drop_table("session_rollups")


def _mark_samples() -> None:
    # One statement, not a copied table: SQLite would delete the old one's rows, which others name.
    op.execute(
        "ALTER TABLE fleets ADD COLUMN is_sample BOOLEAN DEFAULT false NOT NULL\n"
        " CONSTRAINT ck_fleets_sample_observes CHECK (NOT is_sample OR mode = 'observe')"
    )


def _make_imported_sessions() -> None:
    op.create_table(
        "imported_sessions",
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("worker", sa.String(63), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("imported_at", MOMENT, nullable=False),
        sa.Column("streamed_s", sa.Float(), nullable=False),
        sa.Column("num_frames", sa.BigInteger(), nullable=True),
        sa.Column("fps", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(63), nullable=False),
        sa.Column("reason", sa.String(63), nullable=True),
        sa.Column("first_forward_length", sa.BigInteger(), nullable=False),
        sa.Column("is_mixed", sa.Boolean(), nullable=False),
        sa.Column("is_synthetic", sa.Boolean(), nullable=False),
        sa.CheckConstraint("num_frames >= 0", name=op.f("ck_imported_sessions_num_frames_counts")),
        sa.CheckConstraint(
            "first_forward_length >= 0",
            name=op.f("ck_imported_sessions_first_forward_length_counts"),
        ),
        sa.CheckConstraint(_OUTCOMES, name=op.f("ck_imported_sessions_outcome_known")),
        sa.CheckConstraint(_REASONS, name=op.f("ck_imported_sessions_reason_known")),
        sa.ForeignKeyConstraint(
            ["fleet_id"], ["fleets.id"], name=op.f("fk_imported_sessions_fleet_id")
        ),
        sa.PrimaryKeyConstraint("fleet_id", "id", name=op.f("pk_imported_sessions")),
    )


def _make_session_days() -> None:
    op.create_table(
        "session_days",
        sa.Column("day", sa.BigInteger(), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("variants", sa.String(63), nullable=False),
        sa.Column("is_mixed", sa.Boolean(), nullable=False),
        sa.Column("is_synthetic", sa.Boolean(), nullable=False),
        sa.Column("is_imported", sa.Boolean(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in COUNTS),
        *(
            sa.CheckConstraint(f"{name} >= 0", name=op.f(f"ck_session_days_{name}_counts"))
            for name in ("day", *COUNTS)
        ),
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_session_days_fleet_id")),
        sa.PrimaryKeyConstraint(
            "day",
            "fleet_id",
            "hardware",
            "stack",
            "variants",
            "is_mixed",
            "is_synthetic",
            "is_imported",
            name=op.f("pk_session_days"),
        ),
    )


def _count_sessions() -> None:
    """Counted by the database; only the digest of each group's flags is made here."""
    conn = op.get_bind()
    day = _DAY[conn.dialect.name]
    group = f"{day}, fleet_id, hardware, stack, flags, is_mixed, is_synthetic"
    counted = sa.text(
        f"SELECT {day} AS day, fleet_id, hardware, stack, flags, is_mixed, is_synthetic,"  # noqa: S608 - our own words
        " count(*) AS num_sessions,"
        f" {_num(_RATED)} AS num_rated,"
        f" {_num(f'{_RATED} AND {_FPS} <= 24.0')} AS num_slow,"
        f" {_num(f'{_RATED} AND {_FPS} <= 23.5')} AS num_very_slow,"
        f" {_num(_FAILED)} AS num_failed,"
        f" {_num(_LIMITED)} AS num_viewer_limited"
        f" FROM sessions GROUP BY {group}"
    )
    rows = [_row(row) for row in conn.execute(counted)]
    if rows:
        op.bulk_insert(_SESSION_DAYS, rows)


_FAILED = "outcome IN ('failed', 'lost')"
_LIMITED = "outcome = 'viewer_limited'"
_SESSION_DAYS = sa.table(
    "session_days",
    *(sa.column(name, sa.BigInteger()) for name in ("day", *COUNTS)),
    *(sa.column(name, sa.String()) for name in ("fleet_id", "hardware", "stack", "variants")),
    *(sa.column(name, sa.Boolean()) for name in ("is_mixed", "is_synthetic", "is_imported")),
    sa.column("flags", JSON),
)


def _num(condition: str) -> str:
    # CASE keeps SQL from dividing by the zero seconds of a session that the condition leaves out.
    first, _, rest = condition.partition(f" AND {_FPS}")
    if not rest:
        return f"sum(CASE WHEN {first} THEN 1 ELSE 0 END)"
    return f"sum(CASE WHEN {first} THEN CASE WHEN {_FPS}{rest} THEN 1 ELSE 0 END ELSE 0 END)"


def _row(found: Any) -> dict[str, Any]:
    flags = found.flags if isinstance(found.flags, dict) else json.loads(found.flags)
    canonical = "\n".join(f"{flag}={flags[flag]}" for flag in sorted(flags))
    return {
        **found._asdict(),
        "flags": found.flags,
        "is_mixed": bool(found.is_mixed),
        "is_synthetic": bool(found.is_synthetic),
        "is_imported": False,
        "variants": hashlib.sha256(canonical.encode()).hexdigest()[:16],
    }
