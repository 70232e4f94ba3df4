"""A canary may be about a stack: then it names no flag, and a policy for it does not either.

SQLite has no way to let a column be empty but to make the table anew. Canaries are named by many
tables, so their rows go out and come back in one transaction, at whose end every name is checked.
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0009"
down_revision = "0008"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(JSONB(), "postgresql")
_CHECKS = {
    "ck_canaries_subject_known": "subject IN ('flag', 'stack')",
    "ck_canaries_one_subject": (
        "(subject = 'flag' AND flag IS NOT NULL AND variant IS NOT NULL AND baseline IS NOT NULL"
        " AND old_stack IS NULL AND variants IS NULL)"
        " OR (subject = 'stack' AND flag IS NULL AND variant IS NULL AND baseline IS NULL"
        " AND old_stack IS NOT NULL AND old_stack <> stack AND variants IS NOT NULL)"
    ),
}
_KEPT = (
    "id, name, fleet_id, flag, variant, baseline, hardware, stack, policy_digest, salt, phase"
    ", step, created_at, phase_since, step_since, bake, baked_until, lease_until"
    ", num_lease_lapses, reason, version, attempt"
)


def upgrade() -> None:
    """Let the names of a flag be empty, and say by a check when they are."""
    if op.get_bind().dialect.name == "postgresql":
        _alter()
        return
    _make_policies_optional()
    _copy()


def _alter() -> None:
    op.alter_column("policies", "flag", nullable=True)
    for name in ("flag", "variant", "baseline"):
        op.alter_column("canaries", name, nullable=True)
    for column in _new_columns():
        op.add_column("canaries", column)
    for name, check in _CHECKS.items():
        op.create_check_constraint(op.f(name), "canaries", check)


def _new_columns() -> tuple[sa.Column[str], ...]:
    return (
        sa.Column("subject", sa.String(63), nullable=False, server_default=sa.text("'flag'")),
        sa.Column("old_stack", sa.String(63), nullable=True),
        sa.Column("variants", JSON, nullable=True),
    )


def _make_policies_optional() -> None:
    op.execute("ALTER TABLE policies RENAME COLUMN flag TO flag_before")
    op.execute("ALTER TABLE policies ADD COLUMN flag VARCHAR(63)")
    op.execute("UPDATE policies SET flag = flag_before")
    op.execute("ALTER TABLE policies DROP COLUMN flag_before")


def _copy() -> None:
    # Names of canaries are checked at the commit: until then the table is empty for a while.
    op.execute("PRAGMA defer_foreign_keys = ON")
    op.execute("CREATE TABLE canaries_before AS SELECT * FROM canaries")
    op.drop_table("canaries")
    op.create_table(
        "canaries",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("flag", sa.String(63), nullable=True),
        sa.Column("variant", sa.String(63), nullable=True),
        sa.Column("baseline", sa.String(63), nullable=True),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("policy_digest", sa.String(64), nullable=False),
        sa.Column("salt", sa.String(64), nullable=False),
        sa.Column("phase", sa.String(63), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("phase_since", MOMENT, nullable=False),
        sa.Column("step_since", MOMENT, nullable=False),
        sa.Column("bake", sa.BigInteger(), nullable=False),
        sa.Column("baked_until", MOMENT, nullable=True),
        sa.Column("lease_until", MOMENT, nullable=True),
        sa.Column("num_lease_lapses", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("attempt", sa.BigInteger(), server_default=sa.text("1"), nullable=False),
        *_new_columns(),
        sa.CheckConstraint("variant <> baseline", name=op.f("ck_canaries_compares_two")),
        sa.CheckConstraint(
            "phase IN ('pending', 'preflight', 'progressing', 'baking', 'held', "
            "'promoted', 'rolling_back', 'contained', 'rolled_back', 'cancelled')",
            name=op.f("ck_canaries_phase_known"),
        ),
        sa.CheckConstraint("step >= 0", name=op.f("ck_canaries_step_counts")),
        sa.CheckConstraint("bake >= 0", name=op.f("ck_canaries_bake_counts")),
        sa.CheckConstraint(
            "num_lease_lapses >= 0", name=op.f("ck_canaries_num_lease_lapses_counts")
        ),
        sa.CheckConstraint("version >= 0", name=op.f("ck_canaries_version_counts")),
        sa.CheckConstraint("attempt >= 1", name=op.f("ck_canaries_attempt_counts")),
        *(sa.CheckConstraint(check, name=op.f(name)) for name, check in _CHECKS.items()),
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_canaries_fleet_id")),
        sa.ForeignKeyConstraint(
            ["policy_digest"], ["policies.digest"], name=op.f("fk_canaries_policy_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canaries")),
        sa.UniqueConstraint("name", name=op.f("uq_canaries_name")),
    )
    op.execute(f"INSERT INTO canaries ({_KEPT}) SELECT {_KEPT} FROM canaries_before")  # noqa: S608 - our own words
    op.drop_table("canaries_before")
    op.create_index(op.f("ix_canaries_flag"), "canaries", ["flag"], unique=False)
    op.create_index(op.f("ix_canaries_fleet_id_id"), "canaries", ["fleet_id", "id"], unique=False)
    op.create_index(op.f("ix_canaries_phase"), "canaries", ["phase"], unique=False)
