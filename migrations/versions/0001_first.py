"""The first schema: fleets, workers, canaries, evidence and the office."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

# Frozen here, so that this migration stays what it was when the code moves on.
MOMENT = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
JSON = sa.Text().with_variant(JSONB(), "postgresql")
SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:  # noqa: PLR0915 - one statement a table
    """Make every table."""
    op.create_table(
        "audit",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("action", sa.String(63), nullable=False),
        sa.Column("target", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_audit")),
    )
    op.create_table(
        "flags",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("summary", sa.String(1000), nullable=False),
        sa.Column("applies", sa.String(63), nullable=False),
        sa.Column("plain", sa.String(63), nullable=False),
        sa.Column("fallback", JSON, nullable=False),
        sa.CheckConstraint(
            "applies IN ('step', 'session', 'restart')", name=op.f("ck_flags_applies_known")
        ),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_flags")),
    )
    op.create_table(
        "fleets",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("mode", sa.String(63), nullable=False),
        sa.Column("promoted", JSON, nullable=False),
        sa.Column("stopped_reason", sa.String(1000), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("mode IN ('observe', 'enforce')", name=op.f("ck_fleets_mode_known")),
        sa.CheckConstraint("version >= 0", name=op.f("ck_fleets_version_counts")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_fleets")),
        sa.UniqueConstraint("name", name=op.f("uq_fleets_name")),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), nullable=False),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("response", JSON, nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("key", name=op.f("pk_idempotency_keys")),
    )
    op.create_index(
        op.f("ix_idempotency_keys_created_at"), "idempotency_keys", ["created_at"], unique=False
    )
    op.create_table(
        "leader",
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("holder", sa.String(200), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.CheckConstraint("epoch >= 0", name=op.f("ck_leader_epoch_counts")),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leader")),
    )
    op.create_table(
        "outbox",
        sa.Column("sequence", SEQUENCE, sa.Identity(always=False), nullable=False),
        sa.Column("topic", sa.String(63), nullable=False),
        sa.Column("body", JSON, nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("due_at", MOMENT, nullable=False),
        sa.Column("num_attempts", sa.BigInteger(), nullable=False),
        sa.Column("sent_at", MOMENT, nullable=True),
        sa.Column("last_error", sa.String(1000), nullable=True),
        sa.CheckConstraint("num_attempts >= 0", name=op.f("ck_outbox_num_attempts_counts")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_outbox")),
    )
    op.create_index(
        "ix_outbox_due",
        "outbox",
        ["due_at"],
        unique=False,
        sqlite_where=sa.text("sent_at IS NULL"),
        postgresql_where=sa.text("sent_at IS NULL"),
    )
    op.create_table(
        "policies",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("summary", sa.String(1000), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_policies")),
    )
    op.create_index(
        op.f("ix_policies_name_created_at"), "policies", ["name", "created_at"], unique=False
    )
    op.create_table(
        "receipts",
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "seq", name=op.f("pk_receipts")),
    )
    op.create_index(op.f("ix_receipts_received_at"), "receipts", ["received_at"], unique=False)
    op.create_table(
        "session_segments",
        sa.Column("session_id", sa.String(64), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("num_frames", sa.BigInteger(), nullable=False),
        sa.Column("streamed_s", sa.Float(), nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_session_segments_position_counts")),
        sa.CheckConstraint("num_frames >= 0", name=op.f("ck_session_segments_num_frames_counts")),
        sa.PrimaryKeyConstraint("session_id", "position", name=op.f("pk_session_segments")),
    )
    op.create_table(
        "stacks",
        sa.Column("digest", sa.String(63), nullable=False),
        sa.Column("parts", JSON, nullable=False),
        sa.Column("first_seen_at", MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("digest", name=op.f("pk_stacks")),
    )
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
        sa.Column("role", sa.String(63), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=True),
        sa.Column("worker", sa.String(63), nullable=True),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=True),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            "role IN ('viewer', 'operator', 'admin', 'worker')",
            name=op.f("ck_api_tokens_role_known"),
        ),
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_api_tokens_fleet_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("hash", name=op.f("uq_api_tokens_hash")),
    )
    op.create_table(
        "canaries",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(100), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("variant", sa.String(63), nullable=False),
        sa.Column("baseline", sa.String(63), nullable=False),
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
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_canaries_fleet_id")),
        sa.ForeignKeyConstraint(
            ["policy_digest"], ["policies.digest"], name=op.f("fk_canaries_policy_digest")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canaries")),
        sa.UniqueConstraint("name", name=op.f("uq_canaries_name")),
    )
    op.create_index(op.f("ix_canaries_flag"), "canaries", ["flag"], unique=False)
    op.create_index(op.f("ix_canaries_fleet_id_id"), "canaries", ["fleet_id", "id"], unique=False)
    op.create_index(op.f("ix_canaries_phase"), "canaries", ["phase"], unique=False)
    op.create_table(
        "session_rollups",
        sa.Column("week", sa.String(63), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("variants", sa.String(63), nullable=False),
        sa.Column("is_mixed", sa.Boolean(), nullable=False),
        sa.Column("is_synthetic", sa.Boolean(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("num_sessions", sa.BigInteger(), nullable=False),
        sa.Column("num_rated", sa.BigInteger(), nullable=False),
        sa.Column("num_slow", sa.BigInteger(), nullable=False),
        sa.Column("num_very_slow", sa.BigInteger(), nullable=False),
        sa.Column("num_failed", sa.BigInteger(), nullable=False),
        sa.Column("num_viewer_limited", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "num_sessions >= 0", name=op.f("ck_session_rollups_num_sessions_counts")
        ),
        sa.CheckConstraint("num_rated >= 0", name=op.f("ck_session_rollups_num_rated_counts")),
        sa.CheckConstraint("num_slow >= 0", name=op.f("ck_session_rollups_num_slow_counts")),
        sa.CheckConstraint(
            "num_very_slow >= 0", name=op.f("ck_session_rollups_num_very_slow_counts")
        ),
        sa.CheckConstraint("num_failed >= 0", name=op.f("ck_session_rollups_num_failed_counts")),
        sa.CheckConstraint(
            "num_viewer_limited >= 0", name=op.f("ck_session_rollups_num_viewer_limited_counts")
        ),
        sa.ForeignKeyConstraint(
            ["fleet_id"], ["fleets.id"], name=op.f("fk_session_rollups_fleet_id")
        ),
        sa.PrimaryKeyConstraint(
            "week",
            "fleet_id",
            "hardware",
            "stack",
            "variants",
            "is_mixed",
            "is_synthetic",
            name=op.f("pk_session_rollups"),
        ),
    )
    op.create_table(
        "variants",
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("summary", sa.String(1000), nullable=False),
        sa.Column("is_canary_only", sa.Boolean(), nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_variants_position_counts")),
        sa.ForeignKeyConstraint(
            ["flag"], ["flags.name"], name=op.f("fk_variants_flag"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("flag", "name", name=op.f("pk_variants")),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("incarnation_since", MOMENT, nullable=False),
        sa.Column("address", sa.String(200), nullable=False),
        sa.Column("capabilities", JSON, nullable=False),
        sa.Column("reported_generation", sa.BigInteger(), nullable=False),
        sa.Column("effective_generation", sa.BigInteger(), nullable=False),
        sa.Column("effective_flags", JSON, nullable=False),
        sa.Column("effective_at", MOMENT, nullable=True),
        sa.Column("flag_bytes", JSON, nullable=False),
        sa.Column("flag_bytes_at", MOMENT, nullable=True),
        sa.Column("last_seen_at", MOMENT, nullable=False),
        sa.Column("last_record_at", MOMENT, nullable=True),
        sa.Column("is_cordoned", sa.Boolean(), nullable=False),
        sa.Column("is_quarantined", sa.Boolean(), nullable=False),
        sa.Column("is_break_glass", sa.Boolean(), nullable=False),
        sa.Column("is_lease_lapsed", sa.Boolean(), nullable=False),
        sa.Column("refused", sa.String(1000), nullable=False),
        sa.CheckConstraint(
            "reported_generation >= 0", name=op.f("ck_workers_reported_generation_counts")
        ),
        sa.CheckConstraint(
            "effective_generation >= 0", name=op.f("ck_workers_effective_generation_counts")
        ),
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_workers_fleet_id")),
        sa.ForeignKeyConstraint(["stack"], ["stacks.digest"], name=op.f("fk_workers_stack")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
        sa.UniqueConstraint("fleet_id", "name", name=op.f("uq_workers_fleet_id_name")),
    )
    op.create_index(
        op.f("ix_workers_fleet_id_hardware_stack"),
        "workers",
        ["fleet_id", "hardware", "stack"],
        unique=False,
    )
    op.create_table(
        "canary_requests",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("kind", sa.String(63), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("answer", sa.String(63), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("answered_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            "kind IN ('pause', 'resume', 'abort', 'promote')",
            name=op.f("ck_canary_requests_kind_known"),
        ),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_canary_requests_canary_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_canary_requests")),
    )
    op.create_index(
        op.f("ix_canary_requests_canary_id_answered_at"),
        "canary_requests",
        ["canary_id", "answered_at"],
        unique=False,
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("verdict", sa.String(63), nullable=False),
        sa.Column("gates", sa.Text(), nullable=False),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint(
            "verdict IN ('passing', 'failing', 'inconclusive', 'unmeasured')",
            name=op.f("ck_decisions_verdict_known"),
        ),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_decisions_canary_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    op.create_index(
        op.f("ix_decisions_canary_id_id"), "decisions", ["canary_id", "id"], unique=False
    )
    op.create_table(
        "desired_states",
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("experiment", JSON, nullable=True),
        sa.Column("is_admitting", sa.Boolean(), nullable=False),
        sa.Column("is_draining", sa.Boolean(), nullable=False),
        sa.Column("reasons", JSON, nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=True),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_desired_states_generation_counts")),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_desired_states_canary_id")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_desired_states_worker_id")
        ),
        sa.PrimaryKeyConstraint("worker_id", name=op.f("pk_desired_states")),
    )
    op.create_table(
        "evidence_blocks",
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("opened_at", MOMENT, nullable=False),
        sa.Column("closed_at", MOMENT, nullable=False),
        sa.Column("arms", JSON, nullable=False),
        sa.Column("sessions", JSON, nullable=False),
        sa.CheckConstraint("position >= 0", name=op.f("ck_evidence_blocks_position_counts")),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_evidence_blocks_canary_id")
        ),
        sa.PrimaryKeyConstraint("canary_id", "position", name=op.f("pk_evidence_blocks")),
    )
    op.create_table(
        "flips",
        sa.Column("sequence", SEQUENCE, sa.Identity(always=False), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("flags_from", JSON, nullable=False),
        sa.Column("flags_to", JSON, nullable=False),
        sa.Column("layer", sa.String(63), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_flips_generation_counts")),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_flips_worker_id")),
        sa.PrimaryKeyConstraint("sequence", name=op.f("pk_flips")),
    )
    op.create_index(
        op.f("ix_flips_worker_id_sequence"), "flips", ["worker_id", "sequence"], unique=False
    )
    op.create_table(
        "incarnations",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("last_record_at", MOMENT, nullable=True),
        sa.Column("num_records", sa.BigInteger(), nullable=False),
        sa.Column("highest_seq", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("num_records >= 0", name=op.f("ck_incarnations_num_records_counts")),
        sa.CheckConstraint("highest_seq >= 0", name=op.f("ck_incarnations_highest_seq_counts")),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_incarnations_worker_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_incarnations")),
    )
    op.create_index(op.f("ix_incarnations_worker_id"), "incarnations", ["worker_id"], unique=False)
    op.create_table(
        "overrides",
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("variant", sa.String(63), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("expires_at", MOMENT, nullable=False),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_overrides_worker_id")),
        sa.PrimaryKeyConstraint("worker_id", "flag", name=op.f("pk_overrides")),
    )
    op.create_table(
        "qualifications",
        sa.Column("flag", sa.String(63), nullable=False),
        sa.Column("variant", sa.String(63), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("canary_id", sa.String(64), nullable=True),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("created_at", MOMENT, nullable=False),
        sa.Column("revoked_at", MOMENT, nullable=True),
        sa.Column("revoked_reason", sa.String(1000), nullable=True),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_qualifications_canary_id")
        ),
        sa.PrimaryKeyConstraint(
            "flag", "variant", "hardware", "stack", name=op.f("pk_qualifications")
        ),
    )
    op.create_table(
        "breaker_trips",
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("reason", sa.String(63), nullable=False),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.BigInteger(), nullable=True),
        sa.Column("session", sa.String(64), nullable=True),
        sa.Column("canary", sa.String(64), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("at", MOMENT, nullable=False),
        sa.Column("closed_at", MOMENT, nullable=True),
        sa.Column("closed_reason", sa.String(1000), nullable=True),
        sa.CheckConstraint(
            "reason IN ('out_of_memory', 'nan', 'rank_disagreement', 'rank_died', "
            "'rank_hung', 'process_lost', 'underrun', 'lease_lapsed', "
            "'break_glass', 'drained')",
            name=op.f("ck_breaker_trips_reason_known"),
        ),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_breaker_trips_generation_counts")),
        sa.CheckConstraint("rank >= 0", name=op.f("ck_breaker_trips_rank_counts")),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_breaker_trips_incarnation")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_breaker_trips_worker_id")
        ),
        sa.PrimaryKeyConstraint("worker_id", "id", name=op.f("pk_breaker_trips")),
    )
    op.create_index(
        op.f("ix_breaker_trips_worker_id_at"), "breaker_trips", ["worker_id", "at"], unique=False
    )
    op.create_table(
        "canary_workers",
        sa.Column("canary_id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("exposed_at", MOMENT, nullable=False),
        sa.Column("flag_bytes_before", sa.BigInteger(), nullable=False),
        sa.Column("contained_at", MOMENT, nullable=True),
        sa.Column("verified_at", MOMENT, nullable=True),
        sa.Column("quarantined_at", MOMENT, nullable=True),
        sa.CheckConstraint(
            "flag_bytes_before >= 0", name=op.f("ck_canary_workers_flag_bytes_before_counts")
        ),
        sa.ForeignKeyConstraint(
            ["canary_id"], ["canaries.id"], name=op.f("fk_canary_workers_canary_id")
        ),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_canary_workers_incarnation")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_canary_workers_worker_id")
        ),
        sa.PrimaryKeyConstraint(
            "canary_id", "worker_id", "incarnation", name=op.f("pk_canary_workers")
        ),
    )
    op.create_table(
        "live_sessions",
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("canary", sa.String(64), nullable=True),
        sa.Column("arm", sa.String(63), nullable=True),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("first_forward_length", sa.BigInteger(), nullable=False),
        sa.Column("is_synthetic", sa.Boolean(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("num_frames", sa.BigInteger(), nullable=False),
        sa.Column("num_first_chunk_frames", sa.BigInteger(), nullable=False),
        sa.Column("streamed_s", sa.Float(), nullable=False),
        sa.Column("viewer_wait_s", sa.Float(), nullable=False),
        sa.Column("num_late_chunks", sa.BigInteger(), nullable=False),
        sa.Column("longest_stall_ms", sa.Float(), nullable=False),
        sa.Column("worst_second_frames", sa.BigInteger(), nullable=True),
        sa.Column("num_steps", sa.BigInteger(), nullable=False),
        sa.Column("num_non_compliant_steps", sa.BigInteger(), nullable=False),
        sa.Column("diffusion_ms_mean", sa.Float(), nullable=True),
        sa.Column("reduce_ms_mean", sa.Float(), nullable=True),
        sa.Column("decoder_ms_mean", sa.Float(), nullable=True),
        sa.Column("encode_ms_mean", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(63), nullable=True),
        sa.Column("reason", sa.String(63), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=True),
        sa.Column("late_outcome", sa.String(63), nullable=True),
        sa.CheckConstraint(
            "first_forward_length >= 0", name=op.f("ck_live_sessions_first_forward_length_counts")
        ),
        sa.CheckConstraint("seq >= 0", name=op.f("ck_live_sessions_seq_counts")),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_live_sessions_generation_counts")),
        sa.CheckConstraint("num_frames >= 0", name=op.f("ck_live_sessions_num_frames_counts")),
        sa.CheckConstraint(
            "num_first_chunk_frames >= 0",
            name=op.f("ck_live_sessions_num_first_chunk_frames_counts"),
        ),
        sa.CheckConstraint(
            "num_late_chunks >= 0", name=op.f("ck_live_sessions_num_late_chunks_counts")
        ),
        sa.CheckConstraint(
            "worst_second_frames >= 0", name=op.f("ck_live_sessions_worst_second_frames_counts")
        ),
        sa.CheckConstraint("num_steps >= 0", name=op.f("ck_live_sessions_num_steps_counts")),
        sa.CheckConstraint(
            "num_non_compliant_steps >= 0",
            name=op.f("ck_live_sessions_num_non_compliant_steps_counts"),
        ),
        sa.CheckConstraint(
            "outcome IN ('completed', 'failed', 'lost', 'viewer_limited')",
            name=op.f("ck_live_sessions_outcome_known"),
        ),
        sa.CheckConstraint(
            "reason IN ('out_of_memory', 'nan', 'rank_disagreement', 'rank_died', "
            "'rank_hung', 'process_lost', 'underrun', 'lease_lapsed', "
            "'break_glass', 'drained')",
            name=op.f("ck_live_sessions_reason_known"),
        ),
        sa.CheckConstraint(
            "late_outcome IN ('completed', 'failed', 'lost', 'viewer_limited')",
            name=op.f("ck_live_sessions_late_outcome_known"),
        ),
        sa.ForeignKeyConstraint(
            ["fleet_id"], ["fleets.id"], name=op.f("fk_live_sessions_fleet_id")
        ),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_live_sessions_incarnation")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_live_sessions_worker_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_live_sessions")),
    )
    op.create_index(op.f("ix_live_sessions_ended_at"), "live_sessions", ["ended_at"], unique=False)
    op.create_index(
        "ix_live_sessions_open",
        "live_sessions",
        ["worker_id"],
        unique=False,
        sqlite_where=sa.text("outcome IS NULL"),
        postgresql_where=sa.text("outcome IS NULL"),
    )
    op.create_index(
        "ix_live_sessions_stratum",
        "live_sessions",
        ["fleet_id", "hardware", "stack", "started_at"],
        unique=False,
    )
    op.create_table(
        "process_windows",
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("received_at", MOMENT, nullable=False),
        sa.Column("resident_bytes", sa.BigInteger(), nullable=False),
        sa.Column("limit_bytes", sa.BigInteger(), nullable=True),
        sa.Column("flag_bytes", JSON, nullable=False),
        sa.Column("lengths", JSON, nullable=False),
        sa.Column("num_sessions_started", sa.BigInteger(), nullable=False),
        sa.Column("power_w", sa.Float(), nullable=True),
        sa.CheckConstraint("seq >= 0", name=op.f("ck_process_windows_seq_counts")),
        sa.CheckConstraint(
            "resident_bytes >= 0", name=op.f("ck_process_windows_resident_bytes_counts")
        ),
        sa.CheckConstraint("limit_bytes >= 0", name=op.f("ck_process_windows_limit_bytes_counts")),
        sa.CheckConstraint(
            "num_sessions_started >= 0", name=op.f("ck_process_windows_num_sessions_started_counts")
        ),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_process_windows_incarnation")
        ),
        sa.ForeignKeyConstraint(
            ["worker_id"], ["workers.id"], name=op.f("fk_process_windows_worker_id")
        ),
        sa.PrimaryKeyConstraint("incarnation", name=op.f("pk_process_windows")),
    )
    op.create_table(
        "sessions",
        sa.Column("week", sa.String(63), nullable=False),
        sa.Column("id", sa.String(64), nullable=False),
        sa.Column("worker_id", sa.String(64), nullable=False),
        sa.Column("incarnation", sa.String(64), nullable=False),
        sa.Column("fleet_id", sa.String(64), nullable=False),
        sa.Column("hardware", sa.String(63), nullable=False),
        sa.Column("stack", sa.String(63), nullable=False),
        sa.Column("canary", sa.String(64), nullable=True),
        sa.Column("arm", sa.String(63), nullable=True),
        sa.Column("flags", JSON, nullable=False),
        sa.Column("first_forward_length", sa.BigInteger(), nullable=False),
        sa.Column("is_synthetic", sa.Boolean(), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.BigInteger(), nullable=False),
        sa.Column("started_at", MOMENT, nullable=False),
        sa.Column("updated_at", MOMENT, nullable=False),
        sa.Column("num_frames", sa.BigInteger(), nullable=False),
        sa.Column("num_first_chunk_frames", sa.BigInteger(), nullable=False),
        sa.Column("streamed_s", sa.Float(), nullable=False),
        sa.Column("viewer_wait_s", sa.Float(), nullable=False),
        sa.Column("num_late_chunks", sa.BigInteger(), nullable=False),
        sa.Column("longest_stall_ms", sa.Float(), nullable=False),
        sa.Column("worst_second_frames", sa.BigInteger(), nullable=True),
        sa.Column("num_steps", sa.BigInteger(), nullable=False),
        sa.Column("num_non_compliant_steps", sa.BigInteger(), nullable=False),
        sa.Column("diffusion_ms_mean", sa.Float(), nullable=True),
        sa.Column("reduce_ms_mean", sa.Float(), nullable=True),
        sa.Column("decoder_ms_mean", sa.Float(), nullable=True),
        sa.Column("encode_ms_mean", sa.Float(), nullable=True),
        sa.Column("outcome", sa.String(63), nullable=False),
        sa.Column("reason", sa.String(63), nullable=True),
        sa.Column("detail", sa.String(1000), nullable=False),
        sa.Column("ended_at", MOMENT, nullable=False),
        sa.Column("is_mixed", sa.Boolean(), nullable=False),
        sa.CheckConstraint(
            "first_forward_length >= 0", name=op.f("ck_sessions_first_forward_length_counts")
        ),
        sa.CheckConstraint("seq >= 0", name=op.f("ck_sessions_seq_counts")),
        sa.CheckConstraint("generation >= 0", name=op.f("ck_sessions_generation_counts")),
        sa.CheckConstraint("num_frames >= 0", name=op.f("ck_sessions_num_frames_counts")),
        sa.CheckConstraint(
            "num_first_chunk_frames >= 0", name=op.f("ck_sessions_num_first_chunk_frames_counts")
        ),
        sa.CheckConstraint("num_late_chunks >= 0", name=op.f("ck_sessions_num_late_chunks_counts")),
        sa.CheckConstraint(
            "worst_second_frames >= 0", name=op.f("ck_sessions_worst_second_frames_counts")
        ),
        sa.CheckConstraint("num_steps >= 0", name=op.f("ck_sessions_num_steps_counts")),
        sa.CheckConstraint(
            "num_non_compliant_steps >= 0", name=op.f("ck_sessions_num_non_compliant_steps_counts")
        ),
        sa.CheckConstraint(
            "outcome IN ('completed', 'failed', 'lost', 'viewer_limited')",
            name=op.f("ck_sessions_outcome_known"),
        ),
        sa.CheckConstraint(
            "reason IN ('out_of_memory', 'nan', 'rank_disagreement', 'rank_died', "
            "'rank_hung', 'process_lost', 'underrun', 'lease_lapsed', "
            "'break_glass', 'drained')",
            name=op.f("ck_sessions_reason_known"),
        ),
        sa.ForeignKeyConstraint(["fleet_id"], ["fleets.id"], name=op.f("fk_sessions_fleet_id")),
        sa.ForeignKeyConstraint(
            ["incarnation"], ["incarnations.id"], name=op.f("fk_sessions_incarnation")
        ),
        sa.ForeignKeyConstraint(["worker_id"], ["workers.id"], name=op.f("fk_sessions_worker_id")),
        sa.PrimaryKeyConstraint("week", "id", name=op.f("pk_sessions")),
    )
    op.create_index(op.f("ix_sessions_id"), "sessions", ["id"], unique=False)
    op.create_index(
        "ix_sessions_stratum",
        "sessions",
        ["fleet_id", "hardware", "stack", "started_at"],
        unique=False,
    )
    op.create_index(
        op.f("ix_sessions_worker_id_started_at"),
        "sessions",
        ["worker_id", "started_at"],
        unique=False,
    )
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
        sa.CheckConstraint(
            "event IN ('started', 'start_expired', 'preflight_passed', "
            "'step_passed', 'last_step_passed', 'bake_passed', 'promote_requested',"
            " 'paused', 'inconclusive', 'lease_lapsed', 'resumed', 'gate_failed', "
            "'hard_stopped', 'abort_requested', 'control_lost', 'containment_seen',"
            " 'verification_seen')",
            name=op.f("ck_transitions_event_known"),
        ),
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
    op.create_index(
        op.f("ix_transitions_canary_id_sequence"),
        "transitions",
        ["canary_id", "sequence"],
        unique=False,
    )
