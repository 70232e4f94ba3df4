"""Answers about sessions, reports, tokens, imports and the audit log."""

from datetime import date, datetime
from typing import Any

from pydantic import Field

from controlplane.api.answers.form import Answer, Flags, Interval, Page, Rehearsed
from controlplane.contract.vocabulary import Outcome, Reason


class Session(Answer):
    """A session that is over."""

    week: str
    id: str
    fleet: str
    worker: str
    incarnation: str
    hardware: str
    stack: str
    canary: str | None
    arm: str | None
    flags: Flags
    is_synthetic: bool
    is_mixed: bool
    started_at: datetime
    ended_at: datetime
    outcome: Outcome
    reason: Reason | None
    detail: str
    num_frames: int
    num_first_chunk_frames: int
    streamed_s: float
    viewer_wait_s: float
    num_late_chunks: int
    longest_stall_ms: float
    first_forward_length: int
    fps: float | None


class Total(Answer):
    """Sessions of one week and fleet; rates with their 95 % intervals."""

    week: str
    starts_on: date
    ends_on: date
    fleet: str
    is_sample: bool
    num_sessions: int
    num_rated: int
    num_slow: int
    num_very_slow: int
    num_failed: int
    num_viewer_limited: int
    slow_rate: float | None
    slow_interval: Interval | None
    very_slow_rate: float | None
    very_slow_interval: Interval | None
    failure_rate: float | None
    failure_interval: Interval | None


class Week(Total):
    """The same for one stratum and set of variants; kinds of sessions apart."""

    hardware: str
    stack: str
    flags: Flags
    is_mixed: bool
    is_synthetic: bool
    is_imported: bool


class Weekly(Page[Week]):
    """Whole weeks, oldest first; `totals` without synthetic sessions."""

    totals: list[Total]
    anchor: date | None
    since: date = Field(alias="from")
    until: date = Field(alias="to")


class Act(Answer):
    """Who did what and why; each hash is of the row and of the hash before."""

    sequence: int
    at: datetime
    actor: str
    action: str
    target: str
    reason: str
    detail: dict[str, Any]
    previous_hash: str
    hash: str


class Token(Answer):
    """A token, without what it is."""

    id: str
    name: str
    role: str
    fleet: str | None
    worker: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


class ChangedToken(Token, Rehearsed):
    """A token that was changed."""


class MadeToken(ChangedToken):
    """A new token; `token` is shown once, and not when the request is repeated with its key."""

    token: str = ""


class Imported(Rehearsed):
    """What became of an import."""

    fleet: str
    num_imported: int
    num_known: int
    is_sample: bool
