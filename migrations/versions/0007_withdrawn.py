"""A canary can be withdrawn: the table of transitions takes one more event."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_CHECK = "ck_transitions_event_known"
_KNOWN = (
    "event IN ('started', 'start_expired', 'preflight_passed', 'step_passed', 'last_step_passed',"
    " 'bake_passed', 'promote_requested', 'paused', 'inconclusive', 'lease_lapsed', 'resumed',"
    " 'gate_failed', 'hard_stopped', 'abort_requested', 'control_lost', 'withdrawn',"
    " 'containment_seen', 'verification_seen')"
)


def upgrade() -> None:
    """Exchange the check; SQLite copies the table for it, PostgreSQL does not."""
    if op.get_bind().dialect.name == "postgresql":
        op.drop_constraint(_CHECK, "transitions")
        op.create_check_constraint(op.f(_CHECK), "transitions", _KNOWN)
        return
    _copy()


def _copy() -> None:
    op.drop_index(op.f("ix_transitions_canary_id_sequence"), "transitions")
    op.rename_table("transitions", "transitions_before")
    op.create_table(
        "transitions",
        sa.Column("sequence", SEQUENCE, sa.Identity(always=False), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("event", sa.String(63), nullable=False),
        sa.Column("phase_from", sa.String(63), nullable=False),
        sa.Column("phase_to", sa.String(63), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("decision_id", sa.String(64), nullable=True),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint(_KNOWN, name=op.f(_CHECK)),
        sa.CheckConstraint(
            "phase_from IN ('pending', 'preflight', 'progressing', 'baking', "
            "'held', 'promoted', 'rolling_back', 'contained', 'rolled_back', "
            "'cancelled')",
            name=op.f("ck_transitions_phase_from_known"),
        ),
        sa.CheckConstraint(
            "phase_to IN ('pending', 'preflight', 'progressing', 'baking', 'held', "
            "'promoted', 'rolling_back', 'contained', 'rolled_back', 'cancelled')",
            name=op.f("ck_transitions_phase_to_known"),
        ),
        sa.CheckConstraint("step >= 0", name=op.f("ck_transitions_step_counts")),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_transitions_canary_id")
        ),
        sa.ForeignKeyConstraint(
            ["decision_id"], ["decisions.id"], name=op.f("fk_transitions_decision_id")
        ),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_transitions")),
    )
    op.execute("INSERT INTO transitions SELECT * FROM transitions_before ORDER BY sequence")
    op.drop_table("transitions_before")
    op.create_index(
        op.f("ix_transitions_canary_id_sequence"),
        "transitions",
        ["canary_id", "sequence"],
        unique=False,
    )
