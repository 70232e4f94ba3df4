"""The agent: what an inference server imports to be run by Steadyframe.

    agent = Agent(AgentConfig(...))
    agent.start(on_change=lambda wanted: ...)
    with agent.open_session(first_forward_length=77) as session:
        for chunk in generate(session.flags):
            session.deliver(num_frames=4)
    agent.stop()

Nothing here waits for the network: the control plane may be away, and the server goes on.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from controlplane.contract.messages import (
    DesiredState,
    Probe,
    ProbeReport,
    RankReport,
    Registration,
)
from controlplane.contract.vocabulary import EventName, Reason
from worker.agent import breakglass, facts, folder, identity, laststate, recovery, threads
from worker.agent.config import AgentConfig
from worker.agent.control import Answer, ControlPlane, HttpControlPlane, UnreachableError
from worker.agent.desired import DesiredWatch
from worker.agent.facts import Facts
from worker.agent.identity import Identity
from worker.agent.intent import Cause, Draw, Flags, Intent, Wanted
from worker.agent.measure import Parts
from worker.agent.records import Ledger
from worker.agent.reports import Reports
from worker.agent.sender import Delivery, Sender
from worker.agent.sessions import Session
from worker.agent.spool import Spool
from worker.agent.steps import StepTally

# How late a lapse, a break-glass file or a due window may be noticed between two steps.
PULSE_S = 0.05
FLUSH_S = 5.0

logger = logging.getLogger(__name__)

OnChange = Callable[[Wanted], None]


class NotAdmittingError(Exception):
    """No session may start on this worker now."""


class Agent:
    """Desired state, breaker, records and their delivery for one worker; safe in any thread."""

    def __init__(
        self,
        config: AgentConfig,
        *,
        control_plane: ControlPlane | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_ns: Callable[[], int] = time.time_ns,
        randomness: random.Random | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Read the state on disk and close the sessions of a dead incarnation; no network call.

        Raises: StateDirInUseError.
        """
        self._config = config
        self._clock = clock
        self._environment = environment
        self._randomness = randomness or random.SystemRandom()
        self._lock, self._stopping = threading.RLock(), threading.Event()
        self._is_known = threading.Event()  # the control plane has answered the registration
        self._threads: list[threading.Thread] = []
        self._on_change: OnChange = lambda _wanted: None
        self._lock_file = folder.hold(config.state_dir)
        self._stack = identity.stack_parts(config.stack)
        self._identity = Identity(
            fleet=config.fleet,
            worker=config.worker,
            hardware=config.hardware,
            incarnation=identity.new_id(self._randomness),
            stack=identity.stack_digest(self._stack),
        )
        self._stored = laststate.load(config.state_dir)
        self._intent = Intent(
            self._stored,
            stack=self._identity.stack,
            fallback=config.fallback,
            capabilities=config.capabilities,
        )
        self._intent.note_glass(is_broken=self._is_glass_broken())
        self._control_plane = control_plane or HttpControlPlane(
            config.url, fleet=config.fleet, worker=config.worker, token_file=config.token_file
        )
        self._open_spool(wall_ns)
        self._steps = StepTally()
        self._reports = Reports(self._control_plane, randomness=self._randomness)
        self._facts = Facts(
            self._reports,
            incarnation=self.incarnation,
            fallback=config.fallback,
            randomness=self._randomness,
        )
        self._watch = DesiredWatch(
            self._control_plane, listener=self, clock=clock, randomness=self._randomness
        )
        self._upcoming_id = identity.new_id(self._randomness)
        self._sessions: dict[str, Session] = {}
        self._num_sessions_started = 0
        self._heard_generation: int | None = None  # accepted or refused, in this life
        self._is_draining = False
        self._is_superseded = False
        self._notified: Wanted | None = None
        self._notified_probe: Probe | None = None
        self._address = config.address

    # What a server asks.

    @property
    def incarnation(self) -> str:
        """Id of this life of the worker's processes."""
        return self._identity.incarnation

    @property
    def wanted(self) -> Wanted:
        """What every rank should run from the next step boundary on; looks at the lease now."""
        with self._lock:
            return self._intent.wanted(self._current_draw(), now=self._clock())

    @property
    def refusal(self) -> str:
        """Why no session may start now, in a sentence; empty if one may."""
        with self._lock:
            accepted = self._intent.accepted
            if self._is_superseded or self._reports.is_superseded:
                return "another life of this worker has registered"
            if self._is_draining or (accepted is not None and accepted.is_draining):
                return "the worker is draining"
            if accepted is not None and not accepted.is_admitting:
                return "the control plane admits no session to this worker"
            return ""

    @property
    def is_draining(self) -> bool:
        """Whether running sessions are to end."""
        with self._lock:
            accepted = self._intent.accepted
            return self._is_draining or (accepted is not None and accepted.is_draining)

    @property
    def probe(self) -> Probe | None:
        """What to try now, if asked: no session is open, and it is not answered yet."""
        with self._lock:
            accepted = self._intent.accepted
            probe = accepted.probe if accepted else None
            if probe is None or self._sessions or probe.id in self._facts.answered:
                return None
            return probe if self.wanted.cause is Cause.DESIRED else None

    # What a server tells.

    def start(self, *, on_change: OnChange | None = None, address: str | None = None) -> None:
        """Start the threads. `on_change` is called from any of them, and must return soon."""
        if address is not None:
            self._address = address
        if on_change is not None:
            self._on_change = on_change
        loops: dict[str, threads.Loop] = {
            "desired": self._watch.run,
            "reports": self._reports.run,
            "sender": self._send,
            "pulse": self._pulse,
        }
        self._threads = threads.started(loops, stopping=self._stopping)

    def stop(self, *, flush_s: float = FLUSH_S) -> None:
        """Deliver what is in the spool for at most `flush_s`, then stop; the rest stays on disk."""
        self._is_draining = True
        self._stopping.set()
        self._sender.nudge(True)  # noqa: FBT003 - a callback of one argument
        self._reports.wake()
        self._flush(until=self._clock() + flush_s)
        if isinstance(self._control_plane, HttpControlPlane):
            self._control_plane.close()
        for thread in self._threads:
            # Daemons: one that is still in a call to a dead host does not keep the process.
            thread.join(timeout=1.0)
        self._spool.close()
        os.close(self._lock_file)

    def drain(self) -> None:
        """Take no session from now on."""
        self._is_draining = True

    def open_session(
        self,
        *,
        first_forward_length: int,
        session_id: str | None = None,
        is_synthetic: bool = False,
    ) -> Session:
        """Draw the arm and put `started` in the spool: call it before the first forward.

        Raises: NotAdmittingError, SpoolFullError; ValueError if a session of that id is open.
        """
        with self._lock:
            if self.refusal:
                raise NotAdmittingError(self.refusal)
            identifier = session_id or self._take_upcoming_id()
            if identifier in self._sessions:
                message = f"session {identifier} is open already"
                raise ValueError(message)
            session = Session(
                self._intent.draw(identifier, now=self._clock()),
                ledger=self._ledger,
                host=self,
                clock=self._clock,
                first_forward_length=first_forward_length,
                is_synthetic=is_synthetic,
                window_s=self._config.window_s,
            )
            session.start()
            self._num_sessions_started += 1
            self._sessions[identifier] = session
        logger.info("session_started session=%s arm=%s", session.id, session.draw.arm)
        self._refresh()
        return session

    def report_effective(
        self,
        flags: Flags,
        *,
        generation: int,
        ranks: Sequence[RankReport] | None = None,
    ) -> None:
        """Tell that every rank runs `flags`; a server of one process gives no ranks."""
        with self._lock:
            cause = self._intent.wanted(self._current_draw(), now=self._clock()).cause
            self._facts.tell_effective(flags, generation=generation, ranks=ranks, cause=cause)

    def report_refused(self, reason: str, *, generation: int) -> None:
        """Tell that the flags of `generation` were not taken; what ran before still runs."""
        with self._lock:
            self._facts.tell_refused(reason, generation=generation)

    def trip(
        self,
        reason: Reason,
        *,
        flags: Flags,
        rank: int | None = None,
        session: str | None = None,
        detail: str = "",
    ) -> Wanted:
        """Open the breaker: the fallback is wanted at once, until a newer generation comes."""
        with self._lock:
            self._facts.tell_trip(
                reason,
                flags=flags,
                generation=self._intent.generation,
                rank=rank,
                draw=self._sessions[session].draw if session in self._sessions else None,
                detail=detail,
            )
            self._intent.note_trip()
        self._refresh()
        return self.wanted

    def report_probe(self, report: ProbeReport) -> None:
        """Tell what came of a probe, which is wanted no more."""
        with self._lock:
            self._facts.tell_probe(report)
        self._refresh()

    def write_process_window(self, fields: Mapping[str, Any]) -> None:
        """Put a `process.window` in the spool; the fields are those the agent cannot know."""
        with self._lock:
            all_fields = {
                "steps": self._steps.times(),
                **fields,
                "generation": self._intent.generation,
                "num_sessions_started": self._num_sessions_started,
            }
        self._ledger.write(EventName.PROCESS_WINDOW, all_fields)

    # What the parts ask: host of sessions, listener of the desired state.

    def effective_flags(self) -> Mapping[str, str]:
        """What every rank runs, as last reported."""
        return self._facts.effective_flags

    def generation(self) -> int:
        """Last generation accepted."""
        return self._intent.generation

    def on_step(self, parts: Parts) -> None:
        """Count a step that was delivered."""
        self._steps.add(parts)

    def on_session_ended(self, session: Session) -> None:
        """Forget the session; what the next one will draw is wanted from now on."""
        with self._lock:
            self._sessions.pop(session.id, None)
        self._refresh()

    def registration(self) -> Registration:
        """This life, as it stands now."""
        return facts.registration(
            self._identity,
            stack=self._stack,
            generation=self._intent.generation,
            flags=self.effective_flags(),
            capabilities=self._config.capabilities,
            address=self._address,
        )

    def on_desired(self, state: DesiredState) -> int:
        """Take an answer of the control plane, or report why not."""
        with self._lock:
            is_news = self._heard_generation is None or state.generation > self._heard_generation
            refused = self._intent.accept(state, now=self._clock())
            self._heard_generation = max(state.generation, self._heard_generation or 0)
            after = max(self._heard_generation, self._intent.generation)
        if is_news and refused:
            self.report_refused(refused, generation=state.generation)
        elif is_news:
            logger.info("desired_state_accepted generation=%d", state.generation)
        self._is_known.set()
        self._refresh()
        return after

    def on_superseded(self) -> None:
        """Stop taking sessions."""
        self._is_superseded = True

    # The inside.

    def _open_spool(self, wall_ns: Callable[[], int]) -> None:
        self._spool = Spool(
            self._config.state_dir,
            limit_bytes=self._config.spool_limit_bytes,
            needed=recovery.needed,
        )
        recovery.close_lost_sessions(self._spool, wall_ns=wall_ns)
        self._sender = Sender(
            self._spool,
            post=self._post_logs,
            folder=self._config.state_dir,
            randomness=self._randomness,
        )
        self._ledger = Ledger(
            self._spool, identity=self._identity, wall_ns=wall_ns, on_append=self._sender.nudge
        )

    def _send(self, stopping: threading.Event) -> None:
        # Not tried in vain before: the sender would back off, and be late with the first records.
        while not self._is_known.wait(timeout=PULSE_S):
            if stopping.is_set():
                return
        self._sender.run(stopping)

    def _post_logs(self, body: bytes) -> Answer:
        """Deliver a batch, but not before this life is known there.

        Records of an unknown incarnation are rejected, and what is rejected is not sent again.
        """
        if self._heard_generation is None:
            raise UnreachableError("the registration has not been answered yet")
        return self._control_plane.post_logs(body)

    def _pulse(self, stopping: threading.Event) -> None:
        while not stopping.wait(PULSE_S):
            try:
                self.beat()
            except OSError as error:  # a full disk must not stop the countdown of the lease
                logger.error("beat_failed reason=%s", error)  # noqa: TRY400 - every 50 ms

    def beat(self) -> None:
        """Look at the break-glass, the lease and the windows that are due."""
        is_broken = self._is_glass_broken()
        with self._lock:
            self._intent.note_glass(is_broken=is_broken)
            sessions = list(self._sessions.values())
        self._refresh()
        for session in sessions:
            session.write_window_if_due()

    def _refresh(self) -> None:
        """Keep what must survive a restart, and tell the server if something else is wanted."""
        with self._lock:
            wanted = self._intent.wanted(self._current_draw(), now=self._clock())
            self._save()
            probe = self.probe
            if wanted == self._notified and probe == self._notified_probe:
                return
            before, self._notified = self._notified, wanted
            self._notified_probe = probe
            if before is not None and before.cause is not wanted.cause:
                self._facts.tell_own_decision(wanted.flags, cause=wanted.cause)
        logger.info("flags_wanted generation=%d cause=%s", wanted.generation, wanted.cause)
        self._on_change(wanted)

    def _current_draw(self) -> Draw:
        """The draw of the newest open session, or of the next one."""
        if self._sessions:
            return next(reversed(self._sessions.values())).draw
        return self._intent.draw(self._upcoming_id, now=self._clock())

    def _take_upcoming_id(self) -> str:
        taken, self._upcoming_id = self._upcoming_id, identity.new_id(self._randomness)
        return taken

    def _save(self) -> None:
        state = self._intent.last_state
        if state == self._stored:
            return
        self._stored = state
        try:
            laststate.save(self._config.state_dir, state)
        except OSError as error:  # a full disk must not keep a worker from its fallback
            logger.error("last_state_not_saved reason=%s", error)  # noqa: TRY400

    def _is_glass_broken(self) -> bool:
        return breakglass.is_broken(self._config.state_dir, environment=self._environment)

    def _flush(self, *, until: float) -> None:
        # The threads may be in the middle of a post: a record that goes twice does no harm.
        while self._clock() < until and self._reports.post_one():
            pass
        while self._clock() < until:
            match self._sender.attempt():
                case Delivery.IDLE | Delivery.LATER:
                    return
                case Delivery.DELIVERED | Delivery.NARROWED | Delivery.SET_ASIDE:
                    pass
