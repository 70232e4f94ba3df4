"""The tables of what is decided and told; the migrations make them, and a test compares the two."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
)
from sqlalchemy import text as sql

from controlplane.domain.blocks import Kind
from controlplane.domain.canary import Event, Phase
from controlplane.domain.flag import Applies
from controlplane.domain.fleet import Mode
from controlplane.domain.ledger import Standing
from controlplane.domain.policy import Subject
from controlplane.store.columns import (
    METADATA,
    Duration,
    at,
    count,
    identifier,
    json_value,
    of_canary,
    of_fleet,
    of_worker,
    one_of,
    sequence,
    stratum,
    text,
    truth,
    word,
)

VERDICTS = ("passing", "failing", "inconclusive", "unmeasured")
REQUEST_KINDS = ("pause", "resume", "abort", "promote")
ROLES = ("viewer", "operator", "admin", "worker")

# --- fleets, workers and what they are told ------------------------------------------------------

fleets = Table(
    "fleets",
    METADATA,
    identifier("id", primary_key=True),
    word("name", unique=True),
    one_of("mode", Mode),
    json_value("promoted"),
    text("stopped_reason", nullable=True),
    count("version"),
    Column(
        "is_sample",
        Boolean,
        CheckConstraint("NOT is_sample OR mode = 'observe'", name="sample_observes"),
        nullable=False,
        server_default=sql("false"),
    ),
)
stacks = Table(
    "stacks", METADATA, word("digest", primary_key=True), json_value("parts"), at("first_seen_at")
)
workers = Table(
    "workers",
    METADATA,
    identifier("id", primary_key=True),
    of_fleet(),
    word("name"),
    word("hardware"),
    word("stack", ForeignKey("stacks.digest")),
    identifier("incarnation"),  # the present one; no foreign key, the two would wait for each other
    at("incarnation_since"),
    text("address", bound=200),
    json_value("capabilities"),
    count("reported_generation"),  # highest ever reported, by any incarnation
    count("effective_generation"),
    json_value("effective_flags"),
    at("effective_at", nullable=True),
    json_value("flag_bytes"),
    at("flag_bytes_at", nullable=True),
    at("last_seen_at"),
    at("last_record_at", nullable=True),
    truth("is_cordoned"),
    truth("is_quarantined"),
    truth("is_break_glass"),
    truth("is_lease_lapsed"),
    text("refused"),  # why the flags of the newest generation were not taken
    UniqueConstraint("fleet_id", "name"),
    Index(None, "fleet_id", "hardware", "stack"),
)
incarnations = Table(
    "incarnations",
    METADATA,
    identifier("id", primary_key=True),
    identifier("worker_id", ForeignKey("workers.id"), index=True),
    *stratum(),
    at("started_at"),
    at("ended_at", nullable=True),
    at("last_record_at", nullable=True),
    count("num_records"),
    count("highest_seq"),  # above num_records: records were lost
)
desired_states = Table(
    "desired_states",
    METADATA,
    identifier("worker_id", ForeignKey("workers.id"), primary_key=True),
    count("generation"),
    json_value("flags"),
    json_value("experiment", nullable=True),
    json_value("probe", nullable=True),  # of a canary in preflight
    truth("is_admitting"),
    truth("is_draining"),
    json_value("reasons"),
    of_canary(nullable=True),
    at("updated_at"),
)
overrides = Table(
    "overrides",
    METADATA,
    of_worker(),
    word("flag"),
    word("variant"),
    text("reason"),
    text("actor", bound=200),
    at("created_at"),
    at("expires_at"),
    PrimaryKeyConstraint("worker_id", "flag"),
)
flips = Table(
    "flips",
    METADATA,
    sequence(),
    of_worker(),
    count("generation"),
    json_value("flags_from"),
    json_value("flags_to"),
    word("layer"),
    text("reason"),
    at("at"),
    Index(None, "worker_id", "sequence"),
)

# --- flags, policies and canaries ----------------------------------------------------------------

flags = Table(
    "flags",
    METADATA,
    word("name", primary_key=True),
    text("summary"),
    one_of("applies", Applies),
    word("plain"),
    json_value("fallback"),
)
variants = Table(
    "variants",
    METADATA,
    word("flag", ForeignKey("flags.name", ondelete="CASCADE")),
    word("name"),
    count("position"),
    text("summary"),
    truth("is_canary_only"),
    PrimaryKeyConstraint("flag", "name"),
)
policies = Table(
    "policies",
    METADATA,
    identifier("digest", primary_key=True),
    word("name"),
    word("flag", nullable=True),  # none: for canaries of a stack
    text("summary"),
    Column("document", Text, nullable=False),
    at("created_at"),
    Index(None, "name", "created_at"),
)
canaries = Table(
    "canaries",
    METADATA,
    identifier("id", primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    of_fleet(),
    Column(
        "subject",
        String(63),
        CheckConstraint(
            f"subject IN ({', '.join(repr(s.value) for s in Subject)})", name="subject_known"
        ),
        nullable=False,
        server_default=sql("'flag'"),
    ),
    word("flag", nullable=True, index=True),
    word("variant", nullable=True),
    word("baseline", nullable=True),
    word("old_stack", nullable=True),  # what a new stack is compared with
    json_value("variants", nullable=True),  # that both stacks run: flag -> variant
    *stratum(),
    identifier("policy_digest", ForeignKey("policies.digest")),
    identifier("salt"),
    one_of("phase", Phase),
    count("step"),
    at("created_at"),
    at("phase_since"),
    at("step_since"),
    Column("bake", Duration, CheckConstraint("bake >= 0", name="bake_counts"), nullable=False),
    at("baked_until", nullable=True),
    at("lease_until", nullable=True),
    count("num_lease_lapses"),
    text("reason"),
    count("version"),
    Column(
        "attempt",
        BigInteger,
        CheckConstraint("attempt >= 1", name="attempt_counts"),
        nullable=False,
        server_default=sql("1"),
    ),
    CheckConstraint("variant <> baseline", name="compares_two"),
    CheckConstraint(
        "(subject = 'flag' AND flag IS NOT NULL AND variant IS NOT NULL AND baseline IS NOT NULL"
        " AND old_stack IS NULL AND variants IS NULL)"
        " OR (subject = 'stack' AND flag IS NULL AND variant IS NULL AND baseline IS NULL"
        " AND old_stack IS NOT NULL AND old_stack <> stack AND variants IS NOT NULL)",
        name="one_subject",
    ),
    Index(None, "fleet_id", "id"),
    Index(None, "phase"),
)
canary_workers = Table(
    "canary_workers",
    METADATA,
    of_canary(),
    of_worker(),
    identifier("incarnation", ForeignKey("incarnations.id")),
    at("exposed_at"),
    count("flag_bytes_before"),
    at("contained_at", nullable=True),
    at("verified_at", nullable=True),
    at("quarantined_at", nullable=True),
    PrimaryKeyConstraint("canary_id", "worker_id", "incarnation"),
)
canary_requests = Table(
    "canary_requests",
    METADATA,
    identifier("id", primary_key=True),
    of_canary(),
    one_of("kind", REQUEST_KINDS),
    text("actor", bound=200),
    text("reason"),
    at("created_at"),
    word("answer", nullable=True),
    text("detail"),
    at("answered_at", nullable=True),
    Index(None, "canary_id", "answered_at"),
)
decisions = Table(
    "decisions",
    METADATA,
    identifier("id", primary_key=True),
    of_canary(),
    one_of("verdict", VERDICTS),
    Column("gates", Text, nullable=False),  # canonical JSON, as it was hashed
    Column("inputs", Text, nullable=False),
    identifier("digest"),
    at("at"),
    Index(None, "canary_id", "id"),
)
transitions = Table(
    "transitions",
    METADATA,
    sequence(),
    of_canary(),
    one_of("event", Event),
    one_of("phase_from", Phase),
    one_of("phase_to", Phase),
    count("step"),
    text("reason"),
    text("actor", bound=200),
    identifier("decision_id", ForeignKey("decisions.id"), nullable=True),
    at("at"),
    Index(None, "canary_id", "sequence"),
)
evidence_blocks = Table(
    "evidence_blocks",
    METADATA,
    sequence(),  # the order they were written in, which is the order they are judged in
    of_canary(),
    one_of("kind", Kind),
    count("position"),
    at("opened_at"),
    at("closed_at"),
    json_value("arms"),
    json_value("tables"),  # indicator -> [[canary bad, canary, control bad, control] a stratum]
    json_value("sessions"),
    json_value("units"),
    UniqueConstraint("canary_id", "kind", "position"),
)
qualifications = Table(
    "qualifications",
    METADATA,
    sequence(),  # the newest that is not revoked says how a variant stands
    word("flag"),
    word("variant"),
    *stratum(),
    one_of("standing", Standing),
    identifier("fleet_id", ForeignKey("fleets.id"), nullable=True),  # where it holds; none: in all
    of_canary(nullable=True),  # none: attested by a person
    identifier("decision_id", ForeignKey("decisions.id"), nullable=True),
    *(count(name, nullable=True) for name in ("num_rated", "num_slow")),
    *(count(name, nullable=True) for name in ("num_sessions", "num_failed")),
    text("actor", bound=200),
    text("reason"),
    at("created_at"),
    at("revoked_at", nullable=True),
    text("revoked_by", bound=200, nullable=True),
    text("revoked_reason", nullable=True),
    CheckConstraint(
        "standing = 'qualified' OR canary_id IS NOT NULL", name="only_canaries_disqualify"
    ),
    Index(None, "flag", "variant", "hardware", "stack"),
)

# --- the office ----------------------------------------------------------------------------------

leader = Table(
    "leader",
    METADATA,
    word("name", primary_key=True),
    text("holder", bound=200),
    count("epoch"),
    at("expires_at"),
)
outbox = Table(
    "outbox",
    METADATA,
    sequence(),
    word("topic"),
    json_value("body"),
    at("created_at"),
    at("due_at"),
    count("num_attempts"),
    at("sent_at", nullable=True),
    text("last_error", nullable=True),
    Index(
        "ix_outbox_due",
        "due_at",
        sqlite_where=sql("sent_at IS NULL"),
        postgresql_where=sql("sent_at IS NULL"),
    ),
)
idempotency_keys = Table(
    "idempotency_keys",
    METADATA,
    Column("key", String(200), primary_key=True),
    identifier("request_digest"),
    json_value("response", nullable=True),
    at("created_at", index=True),
)
audit = Table(
    "audit",
    METADATA,
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    identifier("previous_hash"),
    identifier("hash"),
    text("actor", bound=200),
    word("action"),
    text("target", bound=200),
    text("reason"),
    Column("detail", Text, nullable=False),  # canonical JSON, as it was hashed
    at("at"),
)
api_tokens = Table(
    "api_tokens",
    METADATA,
    identifier("id", primary_key=True),
    text("name", bound=200),
    identifier("hash", unique=True),
    one_of("role", ROLES),
    identifier("fleet_id", ForeignKey("fleets.id"), nullable=True),  # none: every fleet
    word("worker", nullable=True),
    at("created_at"),
    at("expires_at", nullable=True),
    at("revoked_at", nullable=True),
)
web_sessions = Table(
    "web_sessions",
    METADATA,
    identifier("hash", primary_key=True),  # of what the browser's cookie holds
    identifier("token_id", ForeignKey("api_tokens.id")),
    at("created_at"),
    at("expires_at", index=True),
)
