"""A simulated worker: it keeps the contract as a real one does, and its kernels behave as told."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controlplane.contract import vocabulary
from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    LengthProbe,
    Probe,
    ProbeReport,
    RankReport,
    Registration,
)
from controlplane.contract.records import (
    LengthBytes,
    ProcessWindow,
    Record,
    SessionEnded,
    SessionStarted,
)
from controlplane.contract.vocabulary import EventName, Outcome, Reason
from controlplane.simulation.network import Identity, Network
from controlplane.simulation.timeline import Timeline

_FRAMES_A_CHUNK = 4
_CAPABILITIES = {"fused_allreduce": ["nccl", "fused_steady", "fused_all", "fused_small_tiles"]}
_STACK = {"torch": "2.13.0", "build": "simulated"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How sessions under one variant go."""

    fps_mean: float = 24.9
    fps_spread: float = 0.05
    kept_bytes_per_length: int = 0
    slow_share: float = 0.0  # of sessions, at `slow_fps`
    slow_fps: float = 22.5
    death_share: float = 0.0  # of sessions in which the process dies and leaves no record
    fails_after_lengths: int | None = None  # distinct lengths at which memory is out
    rollback_ms: float = 40.0
    left_bytes: int = 0  # on the fallback after the drill


@dataclass(slots=True)
class _Session:
    id: str
    arm: str | None
    canary: str | None
    flags: dict[str, str]
    started_s: float
    length: int
    lost_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class SimulatedWorker:
    """One worker and its life; `is_mute` stops what it says, `is_deaf` what it hears."""

    name: str
    fleet: str
    timeline: Timeline
    network: Network
    randomness: random.Random
    behaviours: Mapping[str, Behaviour]
    fallback: str = "nccl"
    lengths: Sequence[int] = (6, 9, 12, 15, 18)
    session_s: float = 5.0
    poll_s: float = 2.0
    probe_s: float = 1.5
    hardware: str = "cpu"
    stack: Mapping[str, str] = field(default_factory=lambda: dict(_STACK))
    is_mute: bool = False
    is_deaf: bool = False
    is_alive: bool = False
    life: int = 0
    seq: int = 0
    num_started: int = 0
    generation: int = 0
    lease_until_s: float | None = None
    wanted: DesiredState | None = None
    variant: str = "nccl"
    tripped_at_generation: int | None = None
    seen_lengths: set[int] = field(default_factory=set)
    session: _Session | None = None
    probing: str | None = None  # id of the probe that runs
    answered: set[str] = field(default_factory=set)

    @property
    def incarnation(self) -> str:
        """Id of this life."""
        return f"{self.name}-life-{self.life}"

    @property
    def identity(self) -> Identity:
        """Who this life is."""
        return Identity(
            fleet=self.fleet,
            worker=self.name,
            hardware=self.hardware,
            stack=vocabulary.stack_digest(self.stack),
            incarnation=self.incarnation,
        )

    # Life.

    def boot(self) -> None:
        """Begin a life: register at the fallback, then poll, stream and report."""
        self.life += 1
        self.seq = self.num_started = 0
        self.is_alive = True
        self.variant = self.fallback
        self.lease_until_s = self.tripped_at_generation = self.session = self.probing = None
        self.answered = set()
        self.seen_lengths = set()
        registration = Registration(
            fleet=self.fleet,
            worker=self.name,
            incarnation=self.incarnation,
            hardware=self.hardware,
            stack=dict(self.stack),
            generation=self.generation,
            flags={"fused_allreduce": self.variant},
            capabilities=_CAPABILITIES,
        )
        self._take(self.network.register(registration))
        self._begin_probe()  # of the generation that the last life had accepted already
        self._alive_after(self.poll_s * self.randomness.random(), self._poll)
        self._alive_after(self.randomness.random(), self._start_session)
        self._alive_after(0.5, self._window)

    def kill(self, *, restart_after_s: float, leaves_record: bool = True) -> None:
        """SIGKILL: nothing is said; the next life closes what was left open, if it knows of it."""
        left_open, dead, seq = self.session, self.incarnation, self.seq
        self.is_alive = False

        def restart() -> None:
            self.boot()
            if left_open is not None and leaves_record:
                self._say_lost(left_open, dead, seq + 1)

        self.timeline.after(restart_after_s, restart)

    def restack(self, stack: Mapping[str, str], behaviours: Mapping[str, Behaviour]) -> None:
        """Come back on another stack, where kernels may behave otherwise; its session is lost."""
        self.kill(restart_after_s=1.0, leaves_record=False)
        self.stack, self.behaviours = stack, behaviours

    def wake(self) -> None:
        """A held-open call is answered."""
        if self.is_alive:
            self._take(self.network.desired(self.identity))

    # Desired state.

    def _poll(self) -> None:
        self._take(self.network.desired(self.identity))
        self._check_lease()
        self._alive_after(self.poll_s, self._poll)

    def _take(self, state: DesiredState) -> None:
        if self.is_deaf or state.generation < self.generation:
            return
        is_new = state.generation > self.generation
        self.generation, self.wanted = state.generation, state
        self.lease_until_s = (
            None if state.lease_s is None else self.timeline.monotonic() + state.lease_s
        )
        if is_new:
            self.probing = None  # a newer state ends what an older one asked for
            self._set_variant(state.flags["fused_allreduce"])
            self._report()
            self._begin_probe()

    def _check_lease(self) -> None:
        lapsed = self.lease_until_s is not None and self.timeline.monotonic() > self.lease_until_s
        if lapsed and self.variant != self.fallback:
            self._set_variant(self.fallback)
            self._report(is_lease_lapsed=True)

    def _set_variant(self, variant: str) -> None:
        if variant != self.variant:
            self.variant = variant
            self.seen_lengths = set()

    def _report(self, *, is_lease_lapsed: bool = False) -> None:
        if self.is_mute:
            return
        flags = {"fused_allreduce": self.variant}
        ranks = [
            RankReport(
                rank=rank,
                generation=self.generation,
                digest=vocabulary.flags_digest(flags),
                step=self.num_started,
                flag_bytes={"fused_allreduce": self._kept_bytes() // 2},
            )
            for rank in range(2)
        ]
        report = EffectiveReport(
            incarnation=self.incarnation,
            generation=self.generation,
            flags=flags,
            ranks=ranks,
            is_lease_lapsed=is_lease_lapsed,
        )
        self.network.report(self.identity, report)

    # Preflight.

    def _begin_probe(self) -> None:
        probe = self.wanted.probe if self.wanted else None
        if probe is None or self.session is not None or probe.id in (self.probing, *self.answered):
            return
        self.probing = probe.id
        self._set_variant(probe.flags["fused_allreduce"])
        self.seen_lengths = set(probe.lengths)
        self._report()
        self._alive_after(self.probe_s, lambda: self._end_probe(probe))

    def _end_probe(self, probe: Probe) -> None:
        if self.probing != probe.id or self.wanted is None:
            return
        behaviour = self.behaviours.get(self.variant, Behaviour())
        limit = behaviour.fails_after_lengths
        has_failed = limit is not None and len(probe.lengths) >= limit
        report = ProbeReport(
            incarnation=self.incarnation,
            probe=probe.id,
            canary=probe.canary,
            lengths=[
                LengthProbe(length=length, retained_bytes=behaviour.kept_bytes_per_length)
                for length in probe.lengths[: limit if has_failed else None]
            ],
            flag_bytes_before=0,
            rollback_ms=None if has_failed else behaviour.rollback_ms,
            flag_bytes_left=None if has_failed else behaviour.left_bytes,
            fault=Reason.OUT_OF_MEMORY if has_failed else None,
        )
        self.probing = None
        self.answered.add(probe.id)
        self._set_variant(self.wanted.flags["fused_allreduce"])
        self._report()
        if not self.is_mute:
            self.network.probe(self.identity, report)

    # Sessions.

    def _start_session(self) -> None:
        if self.wanted is None or not self.wanted.is_admitting:
            self._alive_after(1.0, self._start_session)
            return
        session = self._drawn(f"{self.incarnation}-{self.num_started}")
        self.session = session
        self.num_started += 1
        self._say(EventName.SESSION_STARTED, SessionStarted, self._common(session))
        self._set_variant(session.flags["fused_allreduce"])
        self.seen_lengths.add(session.length)
        behaviour = self.behaviours.get(self.variant, Behaviour())
        limit = behaviour.fails_after_lengths
        if limit is not None and len(self.seen_lengths) >= limit:
            self._alive_after(0.2, lambda: self._run_out_of_memory(session))
        elif self._happens(behaviour.death_share):
            self._alive_after(0.5, lambda: self.kill(restart_after_s=1.0, leaves_record=False))
        else:
            self._alive_after(self.session_s, lambda: self._end(session, behaviour))

    def _drawn(self, identifier: str) -> _Session:
        assert self.wanted is not None, "a session before the first desired state"
        flags = dict(self.wanted.flags)
        arm = canary = None
        experiment = self.wanted.experiment
        is_leased = self.lease_until_s is None or self.timeline.monotonic() <= self.lease_until_s
        if experiment and is_leased and self.tripped_at_generation != self.generation:
            shares = [(a.name, a.share) for a in experiment.arms]
            arm = vocabulary.drawn_arm(identifier, salt=experiment.salt, shares=shares)
            flags = next(dict(a.flags) for a in experiment.arms if a.name == arm)
            canary = experiment.canary
        if self.tripped_at_generation == self.generation:
            flags = {"fused_allreduce": self.fallback}
        return _Session(
            id=identifier,
            arm=arm,
            canary=canary,
            flags=flags,
            started_s=self.timeline.monotonic(),
            length=self.randomness.choice(list(self.lengths)),
        )

    def _end(self, session: _Session, behaviour: Behaviour) -> None:
        fps = self.randomness.gauss(behaviour.fps_mean, behaviour.fps_spread)
        if self._happens(behaviour.slow_share):
            fps = behaviour.slow_fps
        fields = self._common(session) | self._counters(session, fps=fps)
        self._say(EventName.SESSION_ENDED, SessionEnded, fields | {"outcome": Outcome.COMPLETED})
        self.session = None
        self._begin_probe()
        self._alive_after(0.1, self._start_session)

    def _happens(self, share: float) -> bool:
        # No number is drawn where nothing can happen: older scenarios keep their course.
        return share > 0 and self.randomness.random() < share

    def _run_out_of_memory(self, session: _Session) -> None:
        flags = {"fused_allreduce": self.variant}
        fields = self._common(session) | self._counters(session, fps=24.5)
        end = {"outcome": Outcome.FAILED, "reason": Reason.OUT_OF_MEMORY}
        self._say(EventName.SESSION_ENDED, SessionEnded, fields | end)
        trip = BreakerTrip(
            incarnation=self.incarnation,
            trip=f"{session.id}-trip",
            reason=Reason.OUT_OF_MEMORY,
            flags=flags,
            generation=self.generation,
            rank=0,
            session=session.id,
            canary=session.canary,
            detail="can't allocate memory",
        )
        self.session = None
        self.tripped_at_generation = self.generation
        self._set_variant(self.fallback)
        if not self.is_mute:
            self.network.trip(self.identity, trip)
        self._report()
        self._begin_probe()
        self._alive_after(0.5, self._start_session)

    def _say_lost(self, session: _Session, incarnation: str, seq: int) -> None:
        fields = self._common(session) | self._counters(session, fps=24.5)
        record = SessionEnded(
            **(fields | {"seq": seq, "outcome": Outcome.FAILED, "reason": Reason.PROCESS_LOST})
        )
        if not self.is_mute:
            dead = replace(self.identity, incarnation=incarnation)
            self.network.record(dead, EventName.SESSION_ENDED, record)

    # Records.

    def _window(self) -> None:
        kept = self.behaviours.get(self.variant, Behaviour()).kept_bytes_per_length
        fields: dict[str, Any] = {
            "resident_bytes": 250 * 2**20 + self._kept_bytes(),
            "limit_bytes": 2**30,
            "flag_bytes": {"fused_allreduce": self._kept_bytes()},
            "lengths": [
                LengthBytes(length=length, retained_bytes=kept)
                for length in sorted(self.seen_lengths)
            ],
            "num_sessions_started": self.num_started,
        }
        self._say(EventName.PROCESS_WINDOW, ProcessWindow, fields)
        self._alive_after(1.0, self._window)

    def _kept_bytes(self) -> int:
        behaviour = self.behaviours.get(self.variant, Behaviour())
        return behaviour.kept_bytes_per_length * len(self.seen_lengths)

    def _common(self, session: _Session) -> dict[str, Any]:
        return {
            "session": session.id,
            "flags": session.flags,
            "canary": session.canary,
            "arm": session.arm,
            "first_forward_length": session.length,
        }

    def _counters(self, session: _Session, *, fps: float) -> dict[str, Any]:
        streamed_s = max(0.1, self.timeline.monotonic() - session.started_s)
        num_frames = _FRAMES_A_CHUNK + max(0, round(fps * streamed_s))
        return {
            "num_frames": num_frames,
            "num_first_chunk_frames": _FRAMES_A_CHUNK,
            # The rate is exactly what the kernel gave: the duration is what follows from it.
            "streamed_s": (num_frames - _FRAMES_A_CHUNK) / fps,
            "num_steps": num_frames // _FRAMES_A_CHUNK,
        }

    def _say(self, event: EventName, kind: type[Record], fields: dict[str, Any]) -> None:
        self.seq += 1
        record = kind(**(fields | {"seq": self.seq, "generation": self.generation}))
        if not self.is_mute:
            self.network.record(self.identity, event, record)

    def _alive_after(self, delay_s: float, action: Callable[[], None]) -> None:
        life = self.life

        def guarded() -> None:
            if self.is_alive and self.life == life:
                action()

        self.timeline.after(delay_s, guarded)
