"""Builders and fakes for the agent's tests; each says only what matters to the case."""

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    Experiment,
    ProbeReport,
    Registration,
)
from controlplane.contract.records import Record
from controlplane.contract.vocabulary import Reason
from tests.worker.control_plane import decode
from worker.agent.agent import Agent
from worker.agent.config import AgentConfig
from worker.agent.control import Answer, UnreachableError
from worker.agent.identity import Identity

__all__ = ["EffectiveReport", "Reason"]

FALLBACK = {"fused_allreduce": "nccl"}
FAST = {"fused_allreduce": "fused_steady"}
CAPABILITIES = {"fused_allreduce": ("nccl", "fused_steady")}
IDENTITY = Identity(fleet="demo", worker="w1", hardware="cpu", incarnation="i-1", stack="0" * 16)


class Clock:
    """Monotonic seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def desired(generation: int = 5, flags: Mapping[str, str] = FAST, **fields: Any) -> DesiredState:
    return DesiredState(
        fleet="demo", worker="w1", generation=generation, flags=dict(flags), **fields
    )


def experiment(*, share: float = 0.5, canary: str = "c-1", salt: str = "s-1") -> Experiment:
    """Fast against fallback."""
    arms = [
        {"name": "canary", "share": share, "flags": FAST},
        {"name": "control", "share": 1 - share, "flags": FALLBACK},
    ]
    return Experiment.model_validate({"canary": canary, "salt": salt, "arms": arms})


class MemoryControlPlane:
    """The port in memory; away unless told otherwise."""

    def __init__(self, state: DesiredState | None = None) -> None:
        self.state = state
        self.error: Exception | None = None
        self.registrations: list[Registration] = []
        self.effectives: list[EffectiveReport] = []
        self.trips: list[BreakerTrip] = []
        self.probes: list[ProbeReport] = []
        self.records: list[tuple[str, Record]] = []

    def register(self, registration: Registration) -> DesiredState:
        self.registrations.append(registration)
        return self._answer()

    def desired(self, *, after: int, incarnation: str) -> DesiredState:
        del after, incarnation
        return self._answer()

    def post_effective(self, report: EffectiveReport) -> None:
        self._answer()
        self.effectives.append(report)

    def post_trip(self, trip: BreakerTrip) -> None:
        self._answer()
        self.trips.append(trip)

    def post_probe(self, report: ProbeReport) -> None:
        self._answer()
        self.probes.append(report)

    def post_logs(self, body: bytes) -> Answer:
        if self.state is None:
            raise UnreachableError
        self.records.extend(decode(body))
        return Answer(status=200)

    def _answer(self) -> DesiredState:
        if self.error is not None:
            raise self.error
        if self.state is None:
            raise UnreachableError
        return self.state


@contextmanager
def agent(
    state_dir: Path,
    *,
    plane: MemoryControlPlane | None = None,
    clock: Callable[[], float] | None = None,
    **config: Any,
) -> Iterator[Agent]:
    """An agent whose threads do not run: the test calls `on_desired` and `beat`."""
    fields: dict[str, Any] = {
        "fleet": "demo", "worker": "w1", "hardware": "cpu", "url": "http://127.0.0.1:9",
        "fallback": FALLBACK, "capabilities": CAPABILITIES, "window_s": 5.0,
    }  # fmt: skip
    made = Agent(
        AgentConfig(state_dir=state_dir, **{**fields, **config}),
        control_plane=plane or MemoryControlPlane(),
        clock=clock or Clock(),
        wall_ns=lambda: 1,
        randomness=random.Random(1),
        environment={},
    )
    try:
        yield made
    finally:
        made.stop(flush_s=5.0)
