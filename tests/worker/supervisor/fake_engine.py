"""The engine's port without processes: does what a test tells it, at once."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

from controlplane.contract import vocabulary
from worker import flags as flag_registry
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
    StepParts,
)
from worker.engine.clamps import ClampSample
from worker.prompts import Prompt

PARTS = StepParts(
    diffusion_ms=20, reduce_ms=5, decoder_ms=3, encode_ms=1, decoder_hidden_ms=7, encode_hidden_ms=2
)


class FakeStartError(Exception):
    """The group does not come up."""


class FakeEngine:
    """Two ranks that take any flags, and chunks of four frames as fast as they are read."""

    def __init__(self, *, num_failing_starts: int = 0, holds_flips: bool = False) -> None:
        self.launches: list[Flags] = []
        self.requests: list[tuple[int, Flags]] = []
        self.refuses: set[str] = set()
        self.is_stopped = False
        self.holds_restarts: asyncio.Event | None = None  # a new group is up once it is set
        self.flags_at_first_forward: list[Mapping[str, str]] = []
        self.num_frame_bytes = 0  # if above 0: as many as each frame has at least
        self.num_chunks = 0
        self.holds: dict[int, float] = {}  # seconds by which a step is held up
        self.prompts: list[Prompt] = []  # of every session and every change
        self.features: list[bytes] = []
        self.clamps: ClampSample | None = None
        self._is_prompt_new = False
        self._num_failing_starts = num_failing_starts
        self._holds_flips = holds_flips
        self._effective: Mapping[str, str] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._session: str | None = None
        self._num_faults = 0

    async def start(self, flags: Flags, *, generation: int) -> Effective:
        self.launches.append(dict(flags))
        if self._num_failing_starts > 0:
            self._num_failing_starts -= 1
            message = "rank 1: no memory"
            raise FakeStartError(message)
        return self._made_effective(flags, generation)

    async def restart(self, flags: Flags, *, generation: int) -> Effective:
        if self.holds_restarts is not None:
            await self.holds_restarts.wait()
        return await self.start(flags, generation=generation)

    async def stop(self) -> None:
        self.is_stopped = True

    def request_flags(self, flags: Flags, *, generation: int) -> None:
        assert not self.requests or generation > self.requests[-1][0], "numbers rise"
        fixed = flag_registry.need_restart(flags, running=self._effective)
        assert not fixed, f"a running group is asked for another {fixed}"
        self.requests.append((generation, dict(flags)))
        refused = self.refuses & set(flags.values())
        if refused:
            reason = f"fused_allreduce: {refused.pop()} cannot allocate"
            self._events.put_nowait(FlagsRefused(generation=generation, flags=flags, reason=reason))
        elif not self._holds_flips:
            self._events.put_nowait(self._made_effective(flags, generation))

    def steer(
        self, session: str, *, prompt: Prompt | None = None, features: bytes | None = None
    ) -> None:
        if session != self._session:
            return
        if prompt:
            self.prompts.append(prompt)
            self._is_prompt_new = True
        if features:
            self.features.append(features)

    async def chunks(
        self,
        session: str,
        *,
        first_forward_length: int,
        seed: int,
        prompt_seed: int | None = None,
        survives: bool = False,
    ) -> AsyncGenerator[Chunk, None]:
        del seed, survives
        first_seed = -1 if prompt_seed is None else prompt_seed
        self.prompts.append(Prompt(num_tokens=first_forward_length, seed=first_seed))
        assert self._session is None, "one session at a time"
        self._session = session
        num_faults = self._num_faults
        self.flags_at_first_forward.append(self._effective)
        try:
            for step in range(1_000_000):
                await asyncio.sleep(self.holds.get(step, 0))
                if self._num_faults > num_faults:
                    return
                names = (b"jpeg%d-%d" % (step, frame) for frame in range(4))
                frames = tuple(name.ljust(self.num_frame_bytes, b".") for name in names)
                self.num_chunks += 1
                is_new, self._is_prompt_new = self._is_prompt_new, False
                yield Chunk(
                    session=session, step=step, frames=frames, parts=PARTS, is_prompt_new=is_new
                )
        finally:
            self._session = None

    async def memory(self) -> MemorySample:
        return MemorySample(
            resident_bytes=1000, limit_bytes=None, flag_bytes={"fused_allreduce": 7},
            retained_by_length={16: 100}, clamps=self.clamps,
        )  # fmt: skip

    async def events(self) -> AsyncIterator[Event]:
        while True:
            yield await self._events.get()

    def fail(self, kind: FaultKind) -> None:
        """The group dies."""
        self._events.put_nowait(
            Fault(kind=kind, rank=1, session=self._session, flags=self._effective, detail="told to")
        )
        self._num_faults += 1

    def _made_effective(self, flags: Flags, generation: int) -> Effective:
        self._effective = dict(flags)
        digest = vocabulary.flags_digest(flags)
        ranks = tuple(
            RankEffective(rank=rank, generation=generation, digest=digest, step=9, flag_bytes={})
            for rank in range(2)
        )
        return Effective(generation=generation, flags=self._effective, ranks=ranks)
