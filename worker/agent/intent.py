"""What this worker should run now, and why: desired state, lease, breaker and break-glass in one.

Decides and remembers; does no IO and reads no clock. Not thread-safe: its owner holds a lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from controlplane.contract import vocabulary
from controlplane.contract.messages import Arm, DesiredState
from worker.agent import lease
from worker.agent.laststate import LastState
from worker.agent.lease import Lease

Flags = Mapping[str, str]


class Cause(StrEnum):
    """Which authority decided the wanted flags."""

    DESIRED = "desired"  # the control plane
    STORED = "stored"  # last known good, proven on this stack
    NO_STATE = "no_state"  # nothing known: fallback
    BREAK_GLASS = "break_glass"
    BREAKER_OPEN = "breaker_open"
    LEASE_LAPSED = "lease_lapsed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The flags that every rank should run from the next step boundary on."""

    flags: Flags
    generation: int
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What one session is to run, fixed when it starts."""

    session: str
    flags: Flags
    generation: int
    revision: int  # of the intent, so that a change after the start is seen
    canary: str | None = None
    arm: str | None = None


class Intent:
    """Desired state as this worker has taken it, with its own reasons to be at the fallback."""

    def __init__(
        self,
        stored: LastState,
        *,
        stack: str,
        fallback: Flags,
        capabilities: Mapping[str, Sequence[str]],
    ) -> None:
        self._fallback = dict(fallback)
        self._capabilities = capabilities
        self._breaker = stored.breaker
        self._generation = stored.generation
        self._proven = self._trusted(stored, stack=stack)
        self._stack = stack
        self._accepted: DesiredState | None = None
        self._lease = Lease()
        self._is_glass_broken = False
        self._revision = 0

    @property
    def generation(self) -> int:
        """Last generation accepted, over restarts."""
        return self._generation

    @property
    def accepted(self) -> DesiredState | None:
        """Last desired state taken in this life, if any."""
        return self._accepted

    @property
    def last_state(self) -> LastState:
        """What to keep on disk."""
        return LastState(
            generation=self._generation,
            flags=dict(self._proven or self._fallback),
            stack=self._stack,
            tripped_generation=self._breaker.tripped_generation,
            lapsed_generation=self._breaker.lapsed_generation,
        )

    def accept(self, state: DesiredState, *, now: float) -> str:
        """Take `state`, or say in a sentence why not; an empty string means taken.

        A repeat of the accepted generation renews its lease. A refused state leaves everything as
        it was and renews nothing, so that an unproven variant then lapses.
        """
        if state.generation < self._generation:
            return f"generation {state.generation} is older than {self._generation}"
        refused = self._refusal(state)
        if refused:
            return refused
        if self._accepted is None or state.generation > self._accepted.generation:
            self._revision += 1
        self.note_time(now)  # a lease that had run out is not revived by a late answer
        self._accepted = state
        self._generation = state.generation
        self._lease = lease.granted(state.lease_s, now=now)
        if state.lease_s is None and not self._breaker.is_tripped(state.generation):
            self._proven = {**self._fallback, **state.flags}
        return ""

    def note_time(self, now: float) -> None:
        """Remember a lapse, so that nothing but a newer generation leads back."""
        if self._accepted is not None and not self._lease.is_alive(now=now):
            self._breaker = replace(self._breaker, lapsed_generation=self._accepted.generation)

    def note_trip(self) -> None:
        """Open the breaker for the generation that was running."""
        # 0 would mean "never": a trip before any generation closes nothing but the fallback itself.
        self._breaker = replace(self._breaker, tripped_generation=self._generation)

    def note_glass(self, *, is_broken: bool) -> None:
        """Take note of whether someone on the machine forces the fallback."""
        self._is_glass_broken = is_broken

    def wanted(self, draw: Draw, *, now: float) -> Wanted:
        """What to run now, for the session of `draw` or, between sessions, for the next one."""
        self.note_time(now)
        cause = self._cause()
        if cause not in (Cause.DESIRED, Cause.STORED):
            return Wanted(flags=self._fallback, generation=self._generation, cause=cause)
        return Wanted(flags=self._flags_for(draw), generation=self._generation, cause=cause)

    def draw(self, session: str, *, now: float) -> Draw:
        """What `session` would run if it started now.

        While the worker is at the fallback by its own decision no arm is drawn: such a session is
        evidence for neither side.
        """
        self.note_time(now)
        arm = self._drawn_arm(session) if self._cause() is Cause.DESIRED else None
        experiment = self._accepted.experiment if self._accepted else None
        return Draw(
            session=session,
            flags=self._base() if arm is None else {**self._base(), **arm.flags},
            generation=self._generation,
            revision=self._revision,
            canary=experiment.canary if experiment and arm else None,
            arm=arm.name if arm else None,
        )

    def _cause(self) -> Cause:
        if self._is_glass_broken:
            return Cause.BREAK_GLASS
        if self._breaker.is_tripped(self._generation):
            return Cause.BREAKER_OPEN
        if self._breaker.is_lapsed(self._generation):
            return Cause.LEASE_LAPSED
        if self._accepted is not None:
            return Cause.DESIRED
        return Cause.STORED if self._proven else Cause.NO_STATE

    def _base(self) -> Flags:
        match self._cause():
            case Cause.DESIRED:
                assert self._accepted is not None, "a desired cause has an accepted state"
                return {**self._fallback, **self._accepted.flags}
            case Cause.STORED:
                return self._proven
            case _:
                return self._fallback

    def _flags_for(self, draw: Draw) -> Flags:
        if draw.revision == self._revision:
            return draw.flags
        arm = self._arm_kept(draw)
        return self._base() if arm is None else {**self._base(), **arm.flags}

    def _arm_kept(self, draw: Draw) -> Arm | None:
        """The arm of a running session while its experiment goes on: a session stays in its arm."""
        experiment = self._accepted.experiment if self._accepted else None
        if experiment is None or experiment.canary != draw.canary:
            return None
        return next((arm for arm in experiment.arms if arm.name == draw.arm), None)

    def _drawn_arm(self, session: str) -> Arm | None:
        experiment = self._accepted.experiment if self._accepted else None
        if experiment is None:
            return None
        shares = [(arm.name, arm.share) for arm in experiment.arms]
        name = vocabulary.drawn_arm(session, salt=experiment.salt, shares=shares)
        return next(arm for arm in experiment.arms if arm.name == name)

    def _refusal(self, state: DesiredState) -> str:
        arms = state.experiment.arms if state.experiment else []
        probed = [state.probe.flags] if state.probe else []
        for flags in (state.flags, *(arm.flags for arm in arms), *probed):
            for flag, variant in flags.items():
                if flag not in self._capabilities:
                    known = ", ".join(self._capabilities)
                    return f"flag {flag} is not known to this build, known: {known}"
                if variant not in self._capabilities[flag]:
                    allowed = ", ".join(self._capabilities[flag])
                    return f"{flag} has no variant {variant} in this build, allowed: {allowed}"
        return ""

    def _trusted(self, stored: LastState, *, stack: str) -> Flags:
        """Stored flags if they may run on this stack and build, else none."""
        is_known = all(
            variant in self._capabilities.get(flag, ()) for flag, variant in stored.flags.items()
        )
        if stored.stack != stack or not is_known or not stored.flags:
            return {}
        return {**self._fallback, **stored.flags}
