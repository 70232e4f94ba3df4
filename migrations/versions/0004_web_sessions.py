"""Sessions of browsers: a new table, which code that does not know it leaves alone."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "web_sessions",
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("token_id", sa.String(64), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(
            ["token_id"], ["api_tokens.id"], name=op.f("fk_web_sessions_token_id")
        ),
        sa.PrimaryKeyConstraint("hash", name=op.f("pk_web_sessions")),
    )
    op.create_index(
        op.f("ix_web_sessions_expires_at"), "web_sessions", ["expires_at"], unique=False
    )
