"""A worker with the real agent and an engine that takes no time: sessions of 5 s in a blink.

Frames carry the time at which they would have been delivered, so that a busy machine makes nobody
slow.
"""

import itertools
import threading
from pathlib import Path

from worker.agent.agent import Agent, NotAdmittingError
from worker.agent.config import AgentConfig
from worker.agent.intent import Wanted

FLAG = "fused_allreduce"
FLEET = "chaos"
NUM_CHUNKS = 32
CHUNK_S = 0.16  # four frames: 25 a second
PAUSE_S = 0.1


class Worker:
    """Serves one viewer after another until it is stopped."""

    def __init__(self, name: str, *, url: str, folder: Path, token_file: Path) -> None:
        self.name = name
        self.started: list[str] = []
        self.variants: list[str] = []  # what its engine ran, each change once
        self.generations: list[int] = []
        self._stopping = threading.Event()
        self._lengths = itertools.cycle(range(64, 128, 8))
        self.agent = Agent(
            AgentConfig(
                fleet=FLEET, worker=name, hardware="cpu", url=url, state_dir=folder,
                token_file=token_file, fallback={FLAG: "nccl"},
                capabilities={FLAG: ("nccl", "fused_steady")}, window_s=1.0,
            )
        )  # fmt: skip
        self._thread = threading.Thread(target=self._serve, name=f"viewers-of-{name}")

    def start(self) -> None:
        self.agent.start(on_change=self._flip)
        self._thread.start()

    def stop(self) -> None:
        """End the viewers, deliver what is left."""
        self._stopping.set()
        self._thread.join()
        self.agent.stop(flush_s=60)

    def _flip(self, wanted: Wanted) -> None:
        variant = wanted.flags[FLAG]
        if self.variants[-1:] != [variant]:
            self.variants.append(variant)
        self.generations.append(wanted.generation)
        self.agent.report_effective(wanted.flags, generation=wanted.generation)

    def _serve(self) -> None:
        while not self._stopping.wait(PAUSE_S):
            try:
                session = self.agent.open_session(first_forward_length=next(self._lengths))
            except NotAdmittingError:
                continue
            self.started.append(session.id)
            with session:
                at = self.agent._clock()
                for number in range(NUM_CHUNKS):
                    session.deliver(
                        num_frames=4, at=at + number * CHUNK_S, flags=session.draw.flags
                    )
            self.agent.write_process_window({"resident_bytes": 1 << 20})
