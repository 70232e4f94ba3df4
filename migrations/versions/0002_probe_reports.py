"""What workers measured in preflight, and the probe that a worker is asked for."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0002"
down_revision = "0001"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Add a table and a column that may be empty, which the code now live passes over."""
    op.add_column("desired_states", sa.Column("probe", JSON, nullable=True))
    op.create_table(
        "probe_reports",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("lengths", JSON, nullable=False),
        sa.Column("flag_bytes_before", sa.BigInteger(), nullable=False),
        sa.Column("flag_bytes_left", sa.BigInteger(), nullable=True),
        sa.Column("rollback_ms", sa.Float(), nullable=True),
        sa.Column("fault", sa.String(63), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "fault IN ('out_of_memory', 'nan', 'rank_disagreement', 'rank_died', "
            "'rank_hung', 'process_lost', 'underrun', 'lease_lapsed', "
            "'break_glass', 'drained')",
            name=op.f("ck_probe_reports_fault_known"),
        ),
        sa.CheckConstraint(
            "flag_bytes_before >= 0", name=op.f("ck_probe_reports_flag_bytes_before_counts")
        ),
        sa.CheckConstraint(
            "flag_bytes_left >= 0", name=op.f("ck_probe_reports_flag_bytes_left_counts")
        ),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_probe_reports_canary_id")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_probe_reports_worker_id")
        ),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_probe_reports_incarnation")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_reports")),
    )
    op.create_index(
        op.f("ix_probe_reports_canary_id"), "probe_reports", ["canary_id"], unique=False
    )
