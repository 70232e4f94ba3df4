"""Real groups of processes for the tests, forked from one server that imports torch once."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import pytest

from worker.config import WorkerConfig
from worker.engine.api import Chunk, Event
from worker.engine.engine import LocalEngine
from worker.engine.launcher import ForkServerClient

T = TypeVar("T")
# Generous: other work may have the cores of this machine.
PATIENCE_S = 30.0


@dataclass(slots=True)
class Stand:
    """Engines of one test and the loop that drives them."""

    loop: asyncio.AbstractEventLoop
    server: ForkServerClient
    engines: list[LocalEngine] = field(default_factory=list)

    def run(self, work: Awaitable[T]) -> T:
        """The result of `work`, within the patience of the tests."""

        async def bounded() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self.loop.run_until_complete(bounded())

    def engine(self, config: WorkerConfig) -> LocalEngine:
        """An engine that has not started; stopped after the test."""
        self.engines.append(LocalEngine(config, server=self.server))
        return self.engines[-1]

    def started(self, config: WorkerConfig, variant: str = "nccl") -> LocalEngine:
        """A running engine, at generation 1."""
        engine = self.engine(config)
        self.run(engine.start({"fused_allreduce": variant}, generation=1))
        return engine

    def event(self, engine: LocalEngine) -> Event:
        """The next event."""
        return self.run(anext(engine.events()))

    def flipped(self, engine: LocalEngine, variant: str, *, generation: int) -> Event:
        """The answer to a request for `variant`."""
        engine.request_flags({"fused_allreduce": variant}, generation=generation)
        return self.event(engine)


@pytest.fixture(scope="session")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@pytest.fixture(scope="session")
def server(loop: asyncio.AbstractEventLoop) -> Iterator[ForkServerClient]:
    server = ForkServerClient(start_timeout_s=PATIENCE_S)
    yield server
    loop.run_until_complete(server.stop())


@pytest.fixture
def stand(loop: asyncio.AbstractEventLoop, server: ForkServerClient) -> Iterator[Stand]:
    stand = Stand(loop, server)
    yield stand
    for engine in stand.engines:
        stand.run(engine.stop())


Taken = Callable[..., Coroutine[None, None, list[Chunk]]]


@pytest.fixture
def taken() -> Taken:
    """The first chunks of a session, which is then closed; fewer if the group dies."""

    async def taken(
        engine: LocalEngine, number: int, *, length: int = 5, seed: int = 11, name: str = "session"
    ) -> list[Chunk]:
        chunks = engine.chunks(name, first_forward_length=length, seed=seed)
        got = []
        async for chunk in chunks:
            got.append(chunk)
            if len(got) == number:
                break
        await chunks.aclose()
        return got

    return taken
