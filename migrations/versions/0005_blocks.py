"""Blocks of evidence get kinds, tables by indicator and an order; old ones keep their counts.

A block written before says nothing of single sessions any more, so it has no tables: it is shown,
and is no evidence for or against.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0005"
down_revision = "0004"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(JSONB(), "postgresql")
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_KEPT = "canary_id, position, opened_at, closed_at, arms, sessions"


def upgrade() -> None:
    """Make the table anew and move every row over, in the order the windows opened."""
    op.rename_table("evidence_blocks", "evidence_blocks_before")
    # PostgreSQL keeps the names of constraints, which the new table has too.
    if op.get_bind().dialect.name == "postgresql":
        for name in ("pk_evidence_blocks", "fk_evidence_blocks_canary_id"):
            op.execute(f"ALTER TABLE evidence_blocks_before RENAME CONSTRAINT {name} TO {name}_old")
    op.create_table(
        "evidence_blocks",
        sa.Column("sequence", SEQUENCE, sa.Identity(always=False), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(63), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("closed_at", MOMENT, nullable=False),
        sa.Column("arms", JSON, nullable=False),
        sa.Column("tables", JSON, nullable=False),
        sa.Column("sessions", JSON, nullable=False),
        sa.Column("units", JSON, nullable=False),
        sa.CheckConstraint(
            "kind IN ('sessions', 'failures')", name=op.f("ck_evidence_blocks_kind_known")
        ),
        sa.CheckConstraint("position >= 0", name=op.f("ck_evidence_blocks_position_counts")),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_evidence_blocks_canary_id")
        ),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_evidence_blocks")),
        sa.UniqueConstraint(
            "canary_id",
            "kind",
            "position",
            name=op.f("uq_evidence_blocks_canary_id_kind_position"),
        ),
    )
    op.execute(
        f"INSERT INTO evidence_blocks ({_KEPT}, kind, tables, units)"  # noqa: S608 - our own words
        f" SELECT {_KEPT}, 'sessions', '{{}}', '[]' FROM evidence_blocks_before"
        " ORDER BY canary_id, position"
    )
    op.drop_table("evidence_blocks_before")
