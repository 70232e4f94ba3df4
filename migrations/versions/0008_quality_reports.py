"""What was measured of the picture under a canary's variant: what the gate `quality` judges."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")


def upgrade() -> None:
    """Add a table, which the code now live passes over."""
    op.create_table(
        "quality_reports",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("measure", sa.String(63), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "value >= -1e6 AND value <= 1e6", name=op.f("ck_quality_reports_value_bounded")
        ),
        sa.CheckConstraint("num_samples >= 1", name=op.f("ck_quality_reports_num_samples_counts")),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_quality_reports_canary_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_quality_reports")),
    )
    op.create_index(
        op.f("ix_quality_reports_canary_id_measure_received_at"),
        "quality_reports",
        ["canary_id", "measure", "received_at"],
    )
