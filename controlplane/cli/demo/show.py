"""The loop of the demo: tend the processes, look, show, until what a scene waits for is there."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Final

from controlplane.cli.client import Json
from controlplane.cli.demo import footprint, watching
from controlplane.cli.demo.screen import Screen
from controlplane.cli.demo.stage import Stage
from controlplane.cli.demo.story import CanarySeen, Snapshot, ViewerSession, WorkerSeen
from controlplane.cli.demo.watching import FLAG, FLEET
from controlplane.cli.exits import CliError, Exit

PULSE_S: Final = 0.25
# A canary's effects go on with the whole policy in words: not here.
NUM_EFFECTS: Final = 1
NUM_CPU_SAMPLES: Final = 8
LOOK_EVERY_S: Final = 0.5
MEASURE_EVERY_S: Final = 3.0
# Promised in the README: more would be a fault of ours, so it ends the demo.
MEMORY_LIMIT_BYTES: Final = 3 * 1024**3
_REASON: Final = "scene of steadyframe demo"


class SceneFailedError(Exception):
    """A scene ended otherwise than it must; says what was waited for and what was there."""


class Show:
    """The stage, what was last seen of it, and the screen it is shown on."""

    def __init__(self, stage: Stage, screen: Screen) -> None:
        self.stage = stage
        self.snapshot = Snapshot()
        self.peak_memory_bytes = 0
        self._cpu: list[tuple[float, float]] = []  # monotonic seconds, CPU seconds of all workers
        self._screen = screen
        self._canary: str | None = None
        self._next_look_at = 0.0
        self._next_measure_at = 0.0
        self._waiting = threading.Event()

    @property
    def sessions(self) -> list[ViewerSession]:
        """Every viewer session that has ended so far."""
        return self.stage.viewers.sessions

    def now_s(self) -> float:
        """Seconds on the monotonic clock."""
        return self.stage.clock.monotonic()

    def say(self, text: str) -> None:
        """One line of the event log."""
        self._screen.event(text)

    def scene(self, title: str) -> None:
        """A scene begins."""
        self._screen.scene(title)

    def wait(self, seconds: float) -> None:
        """Let time pass; Ctrl-C gets through."""
        self._waiting.wait(seconds)

    def change(self, path: str, body: Mapping[str, Json]) -> Json:
        """Do something through the API and say its effects. Raises: CliError."""
        answer = self.stage.client.post(path, {**body, "reason": _REASON})
        for effect in list(answer.get("effects", ()))[:NUM_EFFECTS]:
            self.say(str(effect))
        return answer

    def start_canary(self, *, variant: str, policy: str) -> str:
        """Start a canary of `variant` and look at it from now on. Returns: its name."""
        body = {"fleet": FLEET, "flag": FLAG, "variant": variant, "policy": policy}
        answer = self.change("/v1/canaries", body)
        self._canary = str(answer.get("canary", answer)["name"])
        self.say(f"canary {self._canary} started under policy {policy}")
        self.look()
        return self._canary

    def canary(self) -> CanarySeen:
        """The canary of this scene as last seen."""
        assert self.snapshot.canary is not None, "start_canary comes first"
        return self.snapshot.canary

    def until(self, condition: Callable[[Snapshot], bool], *, within_s: float, what: str) -> None:
        """Pulse until `condition` holds.

        Raises:
            SceneFailedError: it does not within `within_s`.
            CliError: a process of the demo has ended that must not.
        """
        give_up_at = self.now_s() + within_s
        while not condition(self.snapshot):
            if self.now_s() > give_up_at:
                raise SceneFailedError(f"after {within_s:g} s still not: {what}; {self._seen()}")
            self.pulse()

    def hold(self, seconds: float) -> None:
        """Pulse for some seconds."""
        end_at = self.now_s() + seconds
        while self.now_s() < end_at:
            self.pulse()

    def pulse(self) -> None:
        """One round: tend, read the viewers, look at the API, measure, draw."""
        self.wait(PULSE_S)
        for happened in self.stage.tend():
            self.say(f"{happened.worker}: its processes {happened.text}")
        for session in self.stage.viewers.collect():
            self._screen.session(session)
        self._check_processes()
        now = self.now_s()
        if now >= self._next_look_at:
            self._next_look_at = now + LOOK_EVERY_S
            self.look()
        if now >= self._next_measure_at:
            self._next_measure_at = now + MEASURE_EVERY_S
            self._measure()

    def worker_cpu_percent(self) -> float | None:
        """Processor time of one worker in percent of one core, mean over the first scenes.

        The first samples alone: a process that has ended takes its time with it.
        """
        samples = self._cpu[:NUM_CPU_SAMPLES]
        if len(samples) < NUM_CPU_SAMPLES or not self.snapshot.workers:
            return None
        (begin_s, begin_cpu_s), (end_s, end_cpu_s) = samples[0], samples[-1]
        return 100 * (end_cpu_s - begin_cpu_s) / (end_s - begin_s) / len(self.snapshot.workers)

    def look(self) -> None:
        """Read the API and tell what is new."""
        before = self.snapshot
        self.snapshot = watching.snapshot(self.stage.client, canary=self._canary)
        for text in news(before, self.snapshot):
            self.say(text)
        self._screen.show(self.snapshot)

    def _check_processes(self) -> None:
        if self.stage.server_exit_code() is not None:
            raise CliError("the demo's control plane died", exit_code=Exit.DEMO_FAILED)
        for name in self.stage.viewers.gone():
            raise CliError(
                f"the viewer of {name} died",
                exit_code=Exit.DEMO_FAILED,
                detail=self.stage.viewers.last_lines(name),
            )

    def _measure(self) -> None:
        whole = footprint.of(os.getpid())
        self.peak_memory_bytes = max(self.peak_memory_bytes, whole.memory_bytes)
        cpu_s = 0.0
        for worker in self.snapshot.workers:
            pid = self.stage.cluster.pid(fleet=FLEET, worker=worker.name)
            if pid is not None:
                measured = footprint.of(pid)
                cpu_s += measured.cpu_s
                self._screen.memory(worker.name, measured.memory_bytes)
        if self.sessions:
            self._cpu.append((self.now_s(), cpu_s))
        if self.peak_memory_bytes > MEMORY_LIMIT_BYTES:
            raise SceneFailedError("the demo takes more than 3 GB of memory")

    def _seen(self) -> str:
        canary = self.snapshot.canary
        workers = ", ".join(_worker_text(worker) for worker in self.snapshot.workers)
        return (
            f"canary {canary.phase} ({canary.reason}); " if canary else ""
        ) + f"workers {workers}"


def news(before: Snapshot, after: Snapshot) -> list[str]:
    """What differs between two looks, in words."""
    told = []
    known = {worker.name: worker for worker in before.workers}
    for worker in after.workers:
        earlier = known.get(worker.name)
        if earlier is None or earlier.flags != worker.flags:
            told.append(f"{worker.name} runs {_flags_text(worker)}, generation {worker.generation}")
    if after.canary is not None:
        told += _canary_news(before.canary, after.canary)
    return told


def _canary_news(before: CanarySeen | None, after: CanarySeen) -> list[str]:
    if before is None or before.name != after.name:
        return [f"{after.name}: {after.phase}: {after.reason}"]
    if before.phase != after.phase or before.step != after.step:
        return [f"{after.name}: {after.phase}, step {after.step + 1}: {after.reason}"]
    return []


def _flags_text(worker: WorkerSeen) -> str:
    return (
        ", ".join(f"{flag}={worker.flags[flag]}" for flag in sorted(worker.flags)) or "nothing yet"
    )


def _worker_text(worker: WorkerSeen) -> str:
    wanted = "" if worker.is_effective else f" (generation {worker.desired_generation} wanted)"
    return f"{worker.name}: {_flags_text(worker)}{wanted}"
