"""Answers about the control plane itself, fleets and their workers."""

from datetime import datetime
from typing import Literal

from controlplane.api.answers.form import Answer, Flags, Rehearsed
from controlplane.contract.messages import Experiment
from controlplane.domain.desired import Layer
from controlplane.domain.fleet import Mode


class Alive(Answer):
    """The process answers."""

    status: Literal["alive"]


class Checks(Answer):
    """What readiness is made of."""

    database: bool
    judge: bool


class Readiness(Answer):
    """Whether the process does its work."""

    status: Literal["ready", "not ready"]
    checks: Checks


class Fleet(Answer):
    """A fleet at a glance."""

    name: str
    is_sample: bool
    mode: Mode
    stopped_reason: str | None
    promoted: Flags
    num_workers: int
    num_out_of_service: int
    num_tripped: int
    num_open_sessions: int
    num_live_canaries: int
    oldest_seen_at: datetime | None


class ChangedFleet(Fleet, Rehearsed):
    """A fleet after a change."""


class Trip(Answer):
    """A breaker that is open."""

    reason: str
    at: datetime
    generation: int


class Pin(Answer):
    """An operator's choice for one flag, until it expires."""

    flag: str
    variant: str
    reason: str
    actor: str
    expires_at: datetime


class Worker(Answer):
    """A worker: what it is told, what its ranks run, and whether it is in service."""

    id: str
    fleet: str
    name: str
    hardware: str
    stack: str
    incarnation: str
    incarnation_since: datetime
    address: str
    capabilities: dict[str, list[str]]
    desired_generation: int
    desired_flags: Flags
    effective_generation: int
    effective_flags: Flags
    effective_at: datetime | None
    flag_bytes: dict[str, int]
    flag_bytes_at: datetime | None
    last_seen_at: datetime
    last_record_at: datetime | None
    num_open_sessions: int
    trip: Trip | None
    pins: list[Pin]
    is_cordoned: bool
    is_quarantined: bool
    is_break_glass: bool
    is_lease_lapsed: bool
    is_effective: bool


class ChangedWorker(Worker, Rehearsed):
    """A worker after a change."""


class ExplainedFlag(Answer):
    """Which layer decided one flag, and why."""

    flag: str
    variant: str
    layer: Layer
    reason: str
    desired: str | None
    effective: str | None


class Explained(Answer):
    """Why a worker runs what it runs."""

    fleet: str
    worker: str
    generation: int
    effective_generation: int
    is_effective: bool
    experiment: Experiment | None
    reasons: list[ExplainedFlag]
