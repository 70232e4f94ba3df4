"""The ledger of qualifications: every record is kept, and a failed canary leaves one, too.

Records that exist are kept as they are; what a canary proved is joined to the decision that
promoted it. Canaries that failed before are recorded as disqualifications, but for those that
failed after the variant had been proven: a migration takes no running worker off its variant.

No process of the release before may still run: it would read every record that is not revoked as a
qualification, those of failures too, and could write none.
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
COUNTS = ("num_rated", "num_slow", "num_sessions", "num_failed")
_COLUMNS = (
    "flag, variant, hardware, stack, standing, canary_id, decision_id, actor, reason, created_at,"
    " revoked_at, revoked_reason"
)
_PROVEN = """
    SELECT flag, variant, hardware, stack, 'qualified' AS standing, canary_id,
        (SELECT transitions.decision_id FROM transitions
            WHERE transitions.canary_id = qualifications_before.canary_id
                AND transitions.phase_to = 'promoted') AS decision_id,
        actor, reason, created_at, revoked_at, revoked_reason
    FROM qualifications_before
"""
_FAILED = """
    SELECT canaries.flag, canaries.variant, canaries.hardware, canaries.stack, 'disqualified',
        canaries.id, failed.decision_id, failed.actor, failed.reason, ended.at, NULL, NULL
    FROM canaries
    JOIN transitions AS failed ON failed.canary_id = canaries.id
        AND failed.event IN ('gate_failed', 'hard_stopped')
    JOIN transitions AS ended ON ended.canary_id = canaries.id
        AND ended.phase_to = 'rolled_back'
    WHERE NOT EXISTS (
        SELECT 1 FROM qualifications_before AS proven
        WHERE proven.flag = canaries.flag AND proven.variant = canaries.variant
            AND proven.hardware = canaries.hardware AND proven.stack = canaries.stack
            AND proven.revoked_at IS NULL AND proven.created_at <= ended.at)
"""


def upgrade() -> None:
    """Make the table anew, move every row over, and number the attempts of canaries."""
    # One statement, not a copied table: SQLite would delete the old one's rows, which others name.
    op.execute(
        "ALTER TABLE canaries ADD COLUMN attempt BIGINT DEFAULT 1 NOT NULL\n"
        " CONSTRAINT ck_canaries_attempt_counts CHECK (attempt >= 1)"
    )
    op.rename_table("qualifications", "qualifications_before")
    # PostgreSQL keeps the names of constraints, which the new table has too.
    if op.get_bind().dialect.name == "postgresql":
        for name in ("pk_qualifications", "fk_qualifications_canary_id"):
            op.execute(f"ALTER TABLE qualifications_before RENAME CONSTRAINT {name} TO {name}_old")
    _make_table()
    # In the order they came, which is the order that their numbers give.
    op.execute(
        f"INSERT INTO qualifications ({_COLUMNS}) {_PROVEN} UNION ALL {_FAILED}"
        " ORDER BY created_at, standing, canary_id"
    )
    op.drop_table("qualifications_before")


def _make_table() -> None:
    op.create_table(
        "qualifications",
        sa.Column("sequence", SEQUENCE, sa.Identity(always=False), nullable=False),
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("variant", sa.String(63), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("standing", sa.String(63), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=True),
        sa.Column("canary_id", sa.String(64), nullable=True),
        sa.Column("decision_id", sa.String(64), nullable=True),
        *(sa.Column(name, sa.BigInteger(), nullable=True) for name in COUNTS),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("revoked_by", sa.String(200), nullable=True),
        sa.Column("revoked_reason", sa.String(1000), nullable=True),
        sa.CheckConstraint(
            "standing IN ('qualified', 'disqualified')",
            name=op.f("ck_qualifications_standing_known"),
        ),
        sa.CheckConstraint(
            "standing = 'qualified' OR canary_id IS NOT NULL",
            name=op.f("ck_qualifications_only_canaries_disqualify"),
        ),
        *(
            sa.CheckConstraint(f"{name} >= 0", name=op.f(f"ck_qualifications_{name}_counts"))
            for name in COUNTS
        ),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_qualifications_canary_id")
        ),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.id"], name=op.f("fk_qualifications_decision_id")
        ),
        sa.ForeignKeyConstraint(
            ["fleet_id"], ["fleets.id"], name=op.f("fk_qualifications_fleet_id")
        ),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_qualifications")),
    )
    op.create_index(
        op.f("ix_qualifications_flag_variant_hardware_stack"),
        "qualifications",
        ["flag", "variant", "hardware", "stack"],
    )
