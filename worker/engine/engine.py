"""The engine of one worker: a tensor-parallel group of real processes behind `api.Engine`.

Lives in the supervisor and must not import torch. Holds what is true of the worker (effective
flags, the running session); the processes hold everything else.
"""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import asdict
from typing import Any

from worker import features as feature_bytes
from worker import flags as flag_registry
from worker.config import WorkerConfig
from worker.engine import group as process_group
from worker.engine import memory as memory_query
from worker.engine import reports, wiring
from worker.engine.api import (
    Chunk,
    Effective,
    Event,
    Fault,
    FaultKind,
    Flags,
    FlagsRefused,
    MemorySample,
    RankEffective,
)
from worker.engine.group import Group
from worker.engine.launcher import CheckpointRefusedError, ForkServerClient, LaunchError
from worker.engine.reports import FaultReport
from worker.engine.stream import Stream
from worker.parallel import kept
from worker.parallel.channel import Message
from worker.prompts import Prompt

_LEADER = 0

logger = logging.getLogger(__name__)


class EngineStartError(Exception):
    """The group did not come up; the message names the rank and what failed."""


class WeightsRefusedError(EngineStartError):
    """The checkpoint is not what it must be: no other start of this worker goes better."""


class LocalEngine:
    """Ranks and decoder on this machine; see `api.Engine` for what each method promises."""

    def __init__(self, config: WorkerConfig, *, server: ForkServerClient | None = None) -> None:
        """Launch nothing yet. `server` may be shared by engines; then `stop` leaves it running."""
        self._config = config
        self._owns_server = server is None
        self._server = server or ForkServerClient(start_timeout_s=config.start_timeout_s)
        self._group: Group | None = None
        self._launch = -1
        # All are ready and none has failed: before, there is nobody to tell anything.
        self._is_up = False
        self._num_processes = 0  # of the group
        self._ready: dict[int, RankEffective | None] = {}
        self._started: asyncio.Future[None] | None = None
        self._start_limit: asyncio.Timeout | None = None
        self._start_limit_s = config.start_timeout_s
        self._effective: Effective | None = None
        self._newest_generation = -1
        self._arriving: dict[int, dict[int, RankEffective]] = {}
        self._wanted: dict[int, Flags] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._session: Stream | None = None
        self._num_sessions = 0
        self._memory = memory_query.MemoryQuery(config.num_ranks)
        self._failing: asyncio.Task[None] | None = None
        self._kept = -1  # memory of the last latents, while there is a fork server to hand it to

    def pids(self) -> Mapping[str, int]:
        """Process ids by name: `forkserver`, `rank0`, ..., `decoder`; of those that run."""
        server = {"forkserver": self._server.pid} if self._server.pid else {}
        return {**server, **(self._group.pids if self._group else {})}

    async def start(self, flags: Flags, *, generation: int) -> Effective:
        """See `api.Engine.start`."""
        assert self._group is None, "the group is running"
        try:
            wanted = self._resolved(flags)
        except flag_registry.UnknownFlagError as error:
            raise EngineStartError(str(error)) from error
        try:
            await self._launched(wanted, generation=generation)
        except BaseException:
            await self._ended()
            raise
        effective = self._settled(wanted, generation=generation)
        self._is_up = True
        self._resume()
        return effective

    async def restart(self, flags: Flags, *, generation: int) -> Effective:
        """See `api.Engine.restart`."""
        if self._failing:
            await self._failing
        await self._end_group()
        if self._session and not self._session.can_resume:
            self._end_stream()
        return await self.start(flags, generation=generation)

    async def stop(self) -> None:
        """See `api.Engine.stop`."""
        if self._failing:
            await self._failing
        await self._ended()
        if self._kept >= 0:
            os.close(self._kept)
            self._kept = -1
        if self._owns_server:
            await self._server.stop()

    def request_flags(self, flags: Flags, *, generation: int) -> None:
        """See `api.Engine.request_flags`."""
        if generation <= self._newest_generation:
            return
        try:
            wanted = self._resolved(flags)
            if self._effective:
                flag_registry.check_live(wanted, running=self._effective.flags)
        except flag_registry.FlagError as error:
            self._refuse(flags, generation=generation, reason=str(error))
            return
        if not self._is_up:
            self._refuse(flags, generation=generation, reason="no group is running")
            return
        assert self._group, "a group that is up is there"
        self._newest_generation = generation
        self._wanted[generation] = wanted
        self._group.send(_LEADER, "flags", flags=wanted, generation=generation)

    def chunks(
        self,
        session: str,
        *,
        first_forward_length: int,
        seed: int,
        prompt_seed: int | None = None,
        survives: bool = False,
    ) -> AsyncGenerator[Chunk, None]:
        """See `api.Engine.chunks`."""
        _check_seed(seed)
        prompt = Prompt(
            num_tokens=first_forward_length, seed=seed if prompt_seed is None else prompt_seed
        )
        self._check_prompt(prompt)
        self._require_no_session()
        return self._stream(session, prompt, seed, survives=survives)

    def steer(
        self, session: str, *, prompt: Prompt | None = None, features: bytes | None = None
    ) -> None:
        """See `api.Engine.steer`."""
        if prompt is not None:
            self._check_prompt(prompt)
        if features is not None and len(features) != feature_bytes.NUM_BYTES:
            message = f"features are {len(features)} bytes; allowed: {feature_bytes.NUM_BYTES}"
            raise ValueError(message)
        running = self._session
        if running is None or running.name != session:
            return
        running.steer(prompt=prompt, features=features)

    async def memory(self) -> MemorySample:
        """See `api.Engine.memory`; the last sample if the group has gone."""
        if self._group is None or not self._is_up:
            return self._memory.last
        return await self._memory.asked(self._group, timeout_s=self._config.watchdog_s)

    async def events(self) -> AsyncIterator[Event]:
        """See `api.Engine.events`."""
        while True:
            yield await self._events.get()

    async def _launched(self, wanted: Flags, *, generation: int) -> None:
        self._launch += 1
        self._ready, self._arriving, self._wanted = {}, {}, {}
        self._started = asyncio.get_running_loop().create_future()
        self._num_processes = wiring.num_processes(wanted, num_ranks=self._config.num_ranks)
        launch = self._launch
        if self._kept < 0:
            self._kept = kept.create(
                num_slots=self._config.num_kept_steps,
                latent_bytes=self._config.model.latent_bytes,
            )
        group = Group(
            self._config.for_launch(launch),
            launch=launch,
            kept=self._kept,
            on_message=self._heard,
            on_failed=self._failed,
        )
        try:
            if self._config.checkpoint:  # under no limit of the start: this may take minutes
                await self._server.prove(self._config)
            self._start_limit_s = self._limit_s(wanted)
            async with asyncio.timeout(self._start_limit_s) as self._start_limit:
                self._group = group
                await group.fork(self._server, wanted, generation=generation)
                await self._started
        except CheckpointRefusedError as error:
            raise WeightsRefusedError(str(error)) from error
        except TimeoutError as error:
            raise EngineStartError(f"not ready in time: {self._missing()}") from error
        except LaunchError as error:
            raise EngineStartError(str(error)) from error
        finally:
            self._start_limit = None
        group.watch()

    def _settled(self, wanted: Flags, *, generation: int) -> Effective:
        ranks = tuple(self._ready[rank] for rank in range(self._config.num_ranks))
        self._newest_generation = max(generation, self._newest_generation)
        self._effective = Effective(
            generation=generation, flags=wanted, ranks=tuple(rank for rank in ranks if rank)
        )
        return self._effective

    async def _stream(
        self, name: str, prompt: Prompt, seed: int, *, survives: bool
    ) -> AsyncGenerator[Chunk, None]:
        self._require_no_session()
        if not self._is_up:
            return
        self._num_sessions += 1
        session = self._session = Stream(
            number=self._num_sessions, name=name, seed=seed, prompt=prompt, survives=survives
        )
        self._tell_leader("start", session, prompt=asdict(prompt), seed=seed)
        try:
            while (chunk := await session.chunks.get()) is not None:
                yield chunk
                self._tell_leader("credit", session, **session.steering())
        finally:
            self._tell_leader("end", session)
            if self._session is session:
                self._session = None

    def _resume(self) -> None:
        """Let a session that waits for this group go on."""
        if self._session and self._group:
            fields = self._session.resumed(most_ahead=self._config.max_chunks_ahead)
            self._group.send(_LEADER, "resume", **fields)

    def _tell_leader(self, kind: str, session: Stream, **fields: Any) -> None:
        if self._group and self._is_up and self._session is session:
            self._group.send(_LEADER, kind, session=session.number, **fields)

    def _check_prompt(self, prompt: Prompt) -> None:
        low, high = self._config.model.first_forward_bounds
        if not low <= prompt.num_tokens <= high:
            message = f"first_forward_length is {prompt.num_tokens}; allowed: {low} to {high}"
            raise ValueError(message)
        _check_seed(prompt.seed)

    def _require_no_session(self) -> None:
        if self._session:
            message = f"session {self._session.name!r} is running; an engine runs one at a time"
            raise ValueError(message)

    def _heard(self, index: int, message: Message) -> None:
        match message.kind:
            case reports.READY:
                self._ready[index] = RankEffective(**message.fields) if message.fields else None
                if len(self._ready) == self._num_processes and self._started:
                    self._started.set_result(None)
            case reports.LOADING:
                self._loading(index, message)
            case reports.CHUNK:
                if self._session:
                    self._session.deliver(message)
            case reports.EFFECTIVE:
                self._arrived(RankEffective(**message.fields))
            case reports.REFUSED:
                fields = message.fields
                self._refuse(
                    fields["flags"], generation=fields["generation"], reason=fields["reason"]
                )
            case reports.MEMORY:
                self._memory.answered(index, message.fields)
            case _:
                raise AssertionError(f"unknown message {message.kind!r}")

    def _loading(self, rank: int, message: Message) -> None:
        """A sign of progress: the start has its whole time again."""
        loaded = message.fields
        logger.info(
            "checkpoint_being_loaded rank=%d block=%d of=%d",
            rank,
            loaded["block"],
            loaded["num_blocks"],
        )
        if self._start_limit:
            loop = asyncio.get_running_loop()
            self._start_limit.reschedule(loop.time() + self._start_limit_s)

    def _arrived(self, rank: RankEffective) -> None:
        """Flags are effective only when every rank says the same of the same step."""
        ranks = self._arriving.setdefault(rank.generation, {})
        ranks[rank.rank] = rank
        if len(ranks) < self._config.num_ranks:
            return
        del self._arriving[rank.generation]
        wanted = self._wanted.pop(rank.generation)
        ordered = tuple(ranks[index] for index in sorted(ranks))
        if len({(each.digest, each.step) for each in ordered}) > 1:
            detail = f"the ranks report different flags for generation {rank.generation}"
            kind = FaultKind.RANK_DISAGREEMENT.value
            self._failed(rank.rank, FaultReport(kind=kind, detail=detail))
            return
        self._effective = Effective(generation=rank.generation, flags=wanted, ranks=ordered)
        self._events.put_nowait(self._effective)

    def _refuse(self, flags: Flags, *, generation: int, reason: str) -> None:
        self._newest_generation = max(generation, self._newest_generation)
        self._events.put_nowait(
            FlagsRefused(generation=generation, flags=dict(flags), reason=reason)
        )

    def _failed(self, index: int, report: FaultReport) -> None:
        if self._started and not self._started.done():
            self._started.set_exception(self._start_error(index, report))
            return
        self._is_up = False
        if self._failing is None:
            self._failing = asyncio.get_running_loop().create_task(self._fail(index, report))

    def _start_error(self, index: int, report: FaultReport) -> EngineStartError:
        name = wiring.name(index, num_ranks=self._config.num_ranks)
        if report.kind == reports.WEIGHTS_REFUSED and self._config.checkpoint:
            folder = self._config.checkpoint.folder
            return WeightsRefusedError(f"{name}: checkpoint {folder}: {report.detail}")
        return EngineStartError(f"{name}: {report.detail}")

    async def _fail(self, index: int, report: FaultReport) -> None:
        """Kill the group, tell the fault, then end the session's stream: in this order."""
        statuses = await self._end_group()
        name = wiring.name(index, num_ranks=self._config.num_ranks)
        kind = FaultKind.RANK_HUNG if report.kind == reports.PEER_LOST else FaultKind(report.kind)
        status = process_group.ending(statuses.get(name))
        survives = self._session is not None and self._session.can_resume
        self._events.put_nowait(
            Fault(
                kind=kind,
                rank=index if index < self._config.num_ranks else None,
                session=self._session.name if self._session else None,
                flags=dict(self._effective.flags) if self._effective else {},
                detail=f"{report.detail} ({status})",
                is_survived=survives,
            )
        )
        if not survives:
            self._end_stream()
        self._failing = None

    async def _ended(self) -> None:
        await self._end_group()
        self._end_stream()

    async def _end_group(self) -> Mapping[str, int]:
        """Returns: how each process of it had ended, by name."""
        self._is_up = False
        group, self._group = self._group, None
        return await group.end(self._server) if group else {}

    def _end_stream(self) -> None:
        if self._session:
            self._session.chunks.put_nowait(None)
            self._session = None

    def _resolved(self, flags: Flags) -> dict[str, str]:
        return flag_registry.resolved(flags, has_demo_variants=self._config.has_demo_variants)

    def _limit_s(self, wanted: Flags) -> float:
        """How long a start with `wanted` may show no progress."""
        execution = flag_registry.EXECUTION
        has_to_compile = wanted[execution.name] != execution.fallback
        return self._config.start_timeout_s + has_to_compile * self._config.compile_timeout_s

    def _missing(self) -> str:
        indexes = set(range(self._num_processes)) - self._ready.keys()
        names = (wiring.name(i, num_ranks=self._config.num_ranks) for i in sorted(indexes))
        return ", ".join(names)


def _check_seed(seed: int) -> None:
    if not 0 <= seed < 2**63:
        message = f"seed is {seed}; allowed: 0 to 2**63 - 1"
        raise ValueError(message)
