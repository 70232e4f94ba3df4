"""The supervisor: keeps a worker's promises to the control plane while the engine computes.

One asyncio loop. Follows what the agent wants, answers the engine's faults at once and by itself,
and is the stage of the viewers' server. Never blocks on the network: that is the agent's part.
"""

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import asdict, replace

from controlplane.contract.records import LengthBytes
from controlplane.contract.telemetry import Clamps, GpuReading
from controlplane.contract.vocabulary import Reason
from worker import flags as flag_registry
from worker.agent.agent import Agent, NotAdmittingError
from worker.agent.intent import Cause, Wanted
from worker.agent.retry import Backoff
from worker.agent.spool import SpoolFullError
from worker.engine.api import Effective, Engine, Event, Fault, FlagsRefused
from worker.main import asking
from worker.main import gpus as gpu_readings
from worker.main.flips import Flips
from worker.main.performance import EnginePerformance
from worker.main.probing import Probing
from worker.server.ports import Performance
from worker.server.refusals import Refusal, RefusalCode
from worker.server.requests import Request

# A flip takes two steps; a session that waits longer starts, and counts what it ran.
FLIP_WAIT_S = 2.0
# A group that ran this long without a fault has recovered: the next restart is at once again.
HEALTHY_AFTER_S = 30.0
FIRST_RESTART_WAIT_S = 0.5
LONGEST_RESTART_WAIT_S = 30.0

logger = logging.getLogger(__name__)


class Supervisor:
    """Owns the engine; the stage of the viewers' server."""

    def __init__(  # noqa: PLR0913 - wiring, keywords only
        self,
        engine: Engine,
        agent: Agent,
        *,
        length_bounds: tuple[int, int],
        window_s: float,
        start_errors: tuple[type[Exception], ...] = (),
        final_errors: tuple[type[Exception], ...] = (),
        gpus: Callable[[], list[GpuReading] | None] = lambda: None,
        randomness: random.Random | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_errors` are what the engine raises when a group cannot be brought up.

        `final_errors` are those of them after which no other attempt goes better. `gpus` answers
        at once with what was read of them last, None if that is old.
        """
        self._engine = engine
        self._agent = agent
        self._flips = Flips(engine)
        self._probing = Probing(engine, agent, self._flips, request=self._request)
        self._length_bounds = length_bounds
        self._window_s = window_s
        self._start_errors, self._final_errors = start_errors, final_errors
        self._clock, self._gpus = clock, gpus
        self._backoff = Backoff(
            randomness or random.SystemRandom(),
            first_s=FIRST_RESTART_WAIT_S,
            limit_s=LONGEST_RESTART_WAIT_S,
        )
        self._performance: EnginePerformance | None = None
        self._is_streaming = False
        self._is_up = False
        self._has_started = False
        self._up_since = 0.0
        self._num_faults_in_row = 0
        self._tried_next: Wanted | None = None  # by the next group; else what the agent wants
        self._launching = asyncio.Lock()  # one group at a time
        self._bring_up_task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.draining = asyncio.Event()
        self.has_tried = asyncio.Event()  # the engine is up, or its first start has failed
        self.final_error: Exception | None = None  # why the engine can never be up again
        self._has_given_up = asyncio.Event()

    # The stage of the server.

    def refusal(self) -> Refusal | None:
        """Why no session may start now."""
        if self._agent.refusal:
            return Refusal(RefusalCode.NOT_ADMITTING, self._agent.refusal)
        if not self._is_up:
            return Refusal(RefusalCode.NOT_READY, "the engine is starting")
        return None

    async def begin(self, request: Request) -> Performance:
        """Open the session, and wait a little for its flags before the first forward.

        Raises: Refusal.
        """
        prompt = asking.prompt(request, bounds=self._length_bounds)
        try:
            session = self._agent.open_session(
                first_forward_length=prompt.num_tokens,
                session_id=request.session,
                is_synthetic=request.is_synthetic,
            )
        except (NotAdmittingError, SpoolFullError, OSError) as error:
            # What cannot be recorded is not served.
            raise Refusal(RefusalCode.NOT_ADMITTING, str(error)) from error
        except ValueError as error:
            raise Refusal(RefusalCode.BAD_REQUEST, str(error)) from error
        self._performance = EnginePerformance(
            self._engine,
            session,
            prompt,
            seed=request.seed,
            length_bounds=self._length_bounds,
            on_finished=self._on_finished,
        )
        self._is_streaming = True
        wanted = self._agent.wanted
        self.follow()
        if not await self._flips.wait_for(self._takes(wanted).flags, timeout_s=FLIP_WAIT_S):
            logger.warning("session_started_before_flip session=%s", session.id)
        return self._performance

    # What the wiring runs.

    async def bring_up(self) -> None:
        """Start the engine's group, or a new one in its place; repeated until one is up."""
        async with self._launching:
            while not (self._is_up or self._has_given_up.is_set()):
                await self._wait_before_restart()
                # Looked up after the wait: the control plane may have spoken meanwhile.
                wanted, self._tried_next = self._tried_next or self._agent.wanted, None
                await self._launch(wanted)
                self.has_tried.set()
                self.follow()  # which may want another group at once

    async def watch_engine(self) -> None:
        """Answer the engine's events, in order, for ever."""
        async for event in self._engine.events():
            await self._on_event(event)

    async def until_given_up(self) -> None:
        """Wait until the engine cannot be brought up by any attempt, and raise why."""
        await self._has_given_up.wait()
        assert self.final_error, "given up without a reason"
        raise self.final_error

    async def report_process(self) -> None:
        """Put a process window in the spool, again and again."""
        while True:
            await asyncio.sleep(self._window_s)
            if self._is_up:
                await self._write_process_window()

    def attach(self, loop: asyncio.AbstractEventLoop) -> Callable[[Wanted], None]:
        """What the agent calls, from its threads, when something else is wanted."""
        self._loop = loop
        return lambda _wanted: self._call_from_thread()

    def follow(self) -> None:
        """Ask the engine for what is wanted now, and end the session if the worker drains."""
        if self._agent.is_draining:
            self.draining.set()
        else:
            self.draining.clear()
        if self._is_up and not self._probing.follow(self._agent.probe):
            self._request(self._agent.wanted)

    def drain(self) -> None:
        """Take no session any more and end the one that runs."""
        self._agent.drain()
        self.draining.set()

    async def stop(self) -> None:
        """End the engine's processes."""
        self._is_up = False
        await self._probing.stop()
        if self._bring_up_task is not None:
            self._bring_up_task.cancel()
            await asyncio.gather(self._bring_up_task, return_exceptions=True)
        await self._engine.stop()

    # The inside.

    def _request(self, wanted: Wanted) -> None:
        """Make `wanted` effective: by a new group if it takes one and no session would be lost.

        While a session runs the group takes what it can; the rest waits for the session's end.
        """
        asked = self._takes(wanted)
        if asked == wanted or self._is_streaming:
            self._flips.request(asked)
        elif self._is_up:
            logger.info("group_replaced generation=%d", wanted.generation)
            self._forget_old_faults()
            self._replace_group(wanted)

    def _takes(self, wanted: Wanted) -> Wanted:
        """What of `wanted` the running group can take."""
        flags = flag_registry.until_restart(wanted.flags, running=self._flips.effective)
        return replace(wanted, flags=flags)

    def _replace_group(self, wanted: Wanted | None = None) -> None:
        """Take no session until a new group is up; `wanted` is tried first, and once."""
        self._is_up = False
        self._tried_next = wanted
        # A task that is at it goes on until a group is up.
        if self._bring_up_task is None or self._bring_up_task.done():
            self._bring_up_task = asyncio.create_task(self.bring_up())

    async def _launch(self, wanted: Wanted) -> None:
        number = self._flips.next_number(wanted)
        launch = self._engine.restart if self._has_started else self._engine.start
        try:
            effective = await launch(wanted.flags, generation=number)
        except self._final_errors as error:
            self._give_up(error)
            return
        except self._start_errors as error:
            self._on_start_failed(wanted, error)
            return
        self._has_started = True
        self._is_up = True
        self._up_since = self._clock()
        await self._on_effective(effective)

    def _on_finished(self) -> None:
        """The session has ended: what had to wait for that is made effective before the next."""
        self._is_streaming = False
        self.follow()

    async def _on_event(self, event: Event) -> None:
        match event:
            case Effective():
                await self._on_effective(event)
            case FlagsRefused():
                await self._flips.note_refused(event)
                generation = self._flips.generation_of(event.generation)
                self._agent.report_refused(event.reason, generation=generation)
            case Fault():
                self._on_fault(event)

    async def _on_effective(self, effective: Effective) -> None:
        ranks = await self._flips.note_effective(effective)
        self._agent.report_effective(
            effective.flags,
            generation=self._flips.generation_of(effective.generation),
            ranks=ranks,
        )

    def _on_fault(self, fault: Fault) -> None:
        """Go to the fallback and bring up a new group, without asking anyone."""
        self._forget_old_faults()
        self._num_faults_in_row += 1
        self._probing.note_fault(fault)
        # The trip before the session ends: it looks up the session's experiment.
        self._agent.trip(
            Reason(fault.kind.value),
            flags=fault.flags,
            rank=fault.rank,
            session=fault.session,
            detail=fault.detail,
        )
        if self._performance is not None and fault.session == self._performance.session:
            self._performance.note_fault(fault)
        self._replace_group()

    def _on_start_failed(self, wanted: Wanted, error: Exception) -> None:
        self._num_faults_in_row += 1
        logger.error("engine_start_failed generation=%d reason=%s", wanted.generation, error)
        # At the fallback there is nothing left to flee from, and once told is enough.
        if wanted.cause is not Cause.BREAKER_OPEN:
            self._agent.trip(Reason.RANK_DIED, flags=wanted.flags, detail=str(error))

    def _give_up(self, error: Exception) -> None:
        """No trip: the flags are not to blame, and the fallback would not come up either."""
        logger.error("engine_start_refused reason=%s", error)
        self.final_error = error
        self._has_given_up.set()
        self.has_tried.set()

    def _forget_old_faults(self) -> None:
        """After a while without one, the next group need not wait."""
        if self._clock() - self._up_since > HEALTHY_AFTER_S:
            self._num_faults_in_row = 0
            self._backoff.reset()

    async def _wait_before_restart(self) -> None:
        """Not at all before the first restart; longer and longer while faults follow each other."""
        if self._num_faults_in_row > 1:
            await asyncio.sleep(self._backoff.next_s())

    async def _write_process_window(self) -> None:
        memory = await self._engine.memory()
        lengths = [
            LengthBytes(length=length, retained_bytes=retained)
            for length, retained in sorted(memory.retained_by_length.items())
        ]
        clamps = Clamps.model_validate(asdict(memory.clamps)) if memory.clamps else None
        gpus = self._gpus()
        self._agent.write_process_window(
            {
                "resident_bytes": memory.resident_bytes,
                "limit_bytes": memory.limit_bytes,
                "flag_bytes": dict(memory.flag_bytes),
                "lengths": lengths,
                "clamps": clamps,
                "gpus": gpus,
                "power_w": gpu_readings.total_power_w(gpus),
            }
        )

    def _call_from_thread(self) -> None:
        assert self._loop is not None, "the agent starts after the loop is attached"
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.follow)
