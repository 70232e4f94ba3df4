"""What the newest process window says of steps, clamped numbers and GPUs."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0010"
down_revision = "0009"

# Frozen here, so that this migration stays what it was when the code moves on.
JSON = sa.Text().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    """Add columns that may be empty, which the code now live passes over."""
    for name in ("steps", "clamps", "gpus"):
        op.add_column("process_windows", sa.Column(name, JSON, nullable=True))
