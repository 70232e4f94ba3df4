"""Answers about qualifications."""

from datetime import datetime

from controlplane.api.answers.form import Answer, Rehearsed
from controlplane.domain.ledger import Origin, Standing


class Basis(Answer):
    """What the canary's own arm did: in sessions, or in processes where those were the arm."""

    num_rated: int
    num_slow: int
    num_sessions: int
    num_failed: int


class Qualification(Answer):
    """A record of the ledger; without `fleet` it holds in every fleet."""

    number: int
    standing: Standing
    origin: Origin
    flag: str
    variant: str
    hardware: str
    stack: str
    fleet: str | None
    canary: str | None
    decision: str | None
    evidence_digest: str | None
    basis: Basis | None
    slow_rate: float | None
    failure_rate: float | None
    actor: str
    reason: str
    created_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None
    revoked_reason: str | None


class ChangedQualification(Qualification, Rehearsed):
    """A record that was revoked."""


class PastQualification(Qualification):
    """A record among all of its variant, hardware and stack."""

    is_current: bool


class FullQualification(PastQualification):
    """A record with its history; `attempt` is the number that the next canary of it has."""

    attempt: int
    history: list[PastQualification]


class Attested(Rehearsed):
    """What was attested: the numbers of the new records."""

    fleet: str
    flag: str
    variant: str
    numbers: list[int]
