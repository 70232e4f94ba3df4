"""The life of one canary, as a pure state machine.

A canary carries one variant of a kernel flag, or a new stack with the variants that are promoted,
from its first sessions to promotion or back. Nothing here reads a clock, a database or a
cluster: callers pass `now` and keep the result.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType

from controlplane.domain.errors import ConflictError
from controlplane.domain.policy import Subject


class Phase(StrEnum):
    """Where a canary stands; the values are what the database and the API show."""

    PENDING = "pending"  # waits for its turn
    PREFLIGHT = "preflight"  # on a worker without viewers
    PROGRESSING = "progressing"
    BAKING = "baking"  # the bake of the last step
    HELD = "held"
    PROMOTED = "promoted"
    ROLLING_BACK = "rolling_back"
    CONTAINED = "contained"  # no worker runs the variant, or none that takes sessions
    ROLLED_BACK = "rolled_back"  # contained and verified
    CANCELLED = "cancelled"  # never began


class Event(StrEnum):
    """What can happen to a canary."""

    STARTED = "started"
    START_EXPIRED = "start_expired"
    PREFLIGHT_PASSED = "preflight_passed"
    STEP_PASSED = "step_passed"
    LAST_STEP_PASSED = "last_step_passed"
    BAKE_PASSED = "bake_passed"
    PROMOTE_REQUESTED = "promote_requested"
    PAUSED = "paused"
    INCONCLUSIVE = "inconclusive"
    LEASE_LAPSED = "lease_lapsed"
    RESUMED = "resumed"
    GATE_FAILED = "gate_failed"
    HARD_STOPPED = "hard_stopped"
    ABORT_REQUESTED = "abort_requested"
    CONTROL_LOST = "control_lost"
    WITHDRAWN = "withdrawn"  # held for want of a decision, and nobody resumed it
    CONTAINMENT_SEEN = "containment_seen"
    VERIFICATION_SEEN = "verification_seen"


EXPOSED = (Phase.PROGRESSING, Phase.BAKING, Phase.HELD)
_BAD_NEWS = (Event.GATE_FAILED, Event.HARD_STOPPED, Event.ABORT_REQUESTED, Event.CONTROL_LOST)

# The whole machine. A pair that is absent is illegal; the tests walk every pair.
TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = MappingProxyType(
    {
        (Phase.PENDING, Event.STARTED): Phase.PREFLIGHT,
        (Phase.PENDING, Event.START_EXPIRED): Phase.CANCELLED,
        (Phase.PENDING, Event.ABORT_REQUESTED): Phase.CANCELLED,
        (Phase.PREFLIGHT, Event.PREFLIGHT_PASSED): Phase.PROGRESSING,
        # A worker may run the variant without viewers: it must be seen to be off it again.
        **{(Phase.PREFLIGHT, event): Phase.ROLLING_BACK for event in _BAD_NEWS},
        (Phase.PREFLIGHT, Event.PAUSED): Phase.HELD,
        (Phase.PREFLIGHT, Event.INCONCLUSIVE): Phase.HELD,
        (Phase.PROGRESSING, Event.STEP_PASSED): Phase.PROGRESSING,
        (Phase.PROGRESSING, Event.LAST_STEP_PASSED): Phase.BAKING,
        (Phase.BAKING, Event.BAKE_PASSED): Phase.PROMOTED,
        # A person may shorten the bake of a canary whose every gate passes, never overrule a gate.
        (Phase.PROGRESSING, Event.PROMOTE_REQUESTED): Phase.PROMOTED,
        (Phase.BAKING, Event.PROMOTE_REQUESTED): Phase.PROMOTED,
        # Resuming goes back to the step, whose bake is kept; the last step passes again at once.
        (Phase.HELD, Event.RESUMED): Phase.PROGRESSING,
        # Held before its preflight had passed, it starts again with that.
        (Phase.HELD, Event.STARTED): Phase.PREFLIGHT,
        **{
            (phase, event): Phase.HELD
            for phase in (Phase.PROGRESSING, Phase.BAKING)
            for event in (Event.PAUSED, Event.INCONCLUSIVE, Event.LEASE_LAPSED)
        },
        # Not decided is not healthy: it does not stay for ever either.
        (Phase.HELD, Event.WITHDRAWN): Phase.ROLLING_BACK,
        # A held canary still has sessions on the variant, so bad news acts there too.
        **{(phase, event): Phase.ROLLING_BACK for phase in EXPOSED for event in _BAD_NEWS},
        (Phase.ROLLING_BACK, Event.CONTAINMENT_SEEN): Phase.CONTAINED,
        (Phase.CONTAINED, Event.VERIFICATION_SEEN): Phase.ROLLED_BACK,
    }
)
TERMINAL = frozenset({Phase.PROMOTED, Phase.ROLLED_BACK, Phase.CANCELLED})
# Phases in which its workers are assigned the variant.
RUNNING = frozenset({Phase.PROGRESSING, Phase.BAKING})
# Two lapses are a pattern, not an accident.
MAX_LEASE_LAPSES = 2


class IllegalTransitionError(ConflictError):
    """The event cannot happen in this phase."""

    def __init__(self, phase: Phase, event: Event) -> None:
        super().__init__(f"{event} cannot happen to a canary that is {phase}")
        self.phase = phase
        self.event = event


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """One variant, or the promoted ones on a new stack, on the way to every session."""

    id: str
    name: str  # speakable: fused-allreduce-17
    fleet: str
    flag: str | None  # None, as the next two: its subject is a stack
    variant: str | None
    baseline: str | None  # the variant that controls run
    hardware: str
    stack: str  # of its exposed workers
    policy_digest: str
    salt: str
    phase: Phase
    step: int  # index into the policy's steps; 0 until the first step has passed
    created_at: datetime  # aware, UTC
    phase_since: datetime
    step_since: datetime
    bake: timedelta  # of the present step, counted only under fresh evidence
    baked_until: datetime | None  # receipt time of the newest record counted in `bake`
    lease_until: datetime | None  # workers leave the variant then unless it is renewed
    num_lease_lapses: int
    reason: str  # of the last transition, in words
    version: int  # rises by one with every transition; the store refuses a stale writer
    # Each attempt before this one failed on the same hardware and stack: attempt k tests at
    # alpha / 2^(k - 1), so that all attempts together err no more often than twice alpha.
    attempt: int = 1
    old_stack: str | None = None  # of the controls of a stack canary
    # What both stacks run in a stack canary, fixed when it is asked for: flag -> variant.
    variants: Mapping[str, str] = field(default_factory=dict)

    @property
    def subject(self) -> Subject:
        """What it is about."""
        return Subject.STACK if self.flag is None else Subject.FLAG

    @property
    def control_stack(self) -> str:
        """The stack of its controls."""
        return self.old_stack or self.stack

    @property
    def tested(self) -> Mapping[str, str]:
        """Flag -> variant that exposed workers run."""
        if self.flag is None or self.variant is None:
            return self.variants
        return {self.flag: self.variant}

    @property
    def compared(self) -> Mapping[str, str]:
        """Flag -> variant that controls run."""
        if self.flag is None or self.baseline is None:
            return self.variants
        return {self.flag: self.baseline}

    @property
    def candidate(self) -> str:
        """What is on trial, in words: a variant, or a stack."""
        return self.variant or f"stack {self.stack}"

    @property
    def left_behind(self) -> str:
        """What its workers leave at a rollback, in words: on a new stack they stay."""
        return self.variant or f"the variants on trial on stack {self.stack}"

    @property
    def way_back(self) -> str:
        """What its workers go back to at a rollback, in words."""
        return self.baseline or "the fallback"


def apply(canary: Canary, event: Event, *, now: datetime, reason: str) -> Canary:
    """Return the canary as it stands after `event`.

    Raises:
        IllegalTransitionError: the pair of phase and event is not in `TRANSITIONS`.
    """
    phase = TRANSITIONS.get((canary.phase, event))
    if phase is None:
        raise IllegalTransitionError(canary.phase, event)
    # A clock that was set back must keep no canary from its way back.
    since = max(now, canary.created_at)
    after = replace(
        canary,
        phase=phase,
        phase_since=canary.phase_since if phase is canary.phase else since,
        num_lease_lapses=canary.num_lease_lapses + (event is Event.LEASE_LAPSED),
        lease_until=canary.lease_until if phase not in TERMINAL else None,
        reason=reason,
        version=canary.version + 1,
    )
    if event in (Event.PREFLIGHT_PASSED, Event.STEP_PASSED):
        after = _enter_step(after, canary.step + (event is Event.STEP_PASSED), now=since)
    check_invariants(after)
    return after


def check_invariants(canary: Canary) -> None:
    """Raise AssertionError if the canary is in a state that no event leads to."""
    assert canary.step >= 0, f"step {canary.step} of canary {canary.name}"
    assert canary.bake >= timedelta(0), f"bake {canary.bake} of canary {canary.name}"
    assert canary.phase_since >= canary.created_at, (
        f"{canary.name} was {canary.phase} before it was"
    )
    assert canary.num_lease_lapses <= MAX_LEASE_LAPSES, f"{canary.name} outlived its lapses"
    assert canary.attempt >= 1, f"attempt {canary.attempt} of canary {canary.name}"
    if canary.subject is Subject.FLAG:
        assert canary.variant, f"{canary.name} tests no variant"
        assert canary.baseline, f"{canary.name} compares with no variant"
        assert canary.variant != canary.baseline, f"{canary.name} compares a variant with itself"
        assert canary.old_stack is None, f"{canary.name} compares stacks, too"
        assert not canary.variants, f"{canary.name} tests more than one flag"
    else:
        assert canary.variant is canary.baseline is None, f"{canary.name} compares variants, too"
        assert canary.old_stack, f"{canary.name} compares a stack with none"
        assert canary.old_stack != canary.stack, f"{canary.name} compares a stack with itself"
        assert canary.variants, f"{canary.name} runs no variant"


def _enter_step(canary: Canary, step: int, *, now: datetime) -> Canary:
    return replace(canary, step=step, step_since=now, bake=timedelta(0), baked_until=None)
