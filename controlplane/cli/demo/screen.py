"""What the demo shows while it runs: plain lines into a pipe, a live view on a terminal."""

from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from controlplane.cli import output
from controlplane.cli.demo.story import CanarySeen, Snapshot, ViewerSession, WorkerSeen, fps_text

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

NUM_EVENTS: Final = 9
_MIB: Final = 1024 * 1024


class Screen(Protocol):
    """Where the demo's progress goes."""

    def scene(self, title: str) -> None:
        """A scene begins."""
        ...

    def event(self, text: str) -> None:
        """Something happened."""
        ...

    def session(self, session: ViewerSession) -> None:
        """A viewer's session has ended."""
        ...

    def memory(self, worker: str, num_bytes: int) -> None:
        """What the processes of a worker take."""
        ...

    def show(self, snapshot: Snapshot) -> None:
        """How things stand."""
        ...

    def close(self) -> None:
        """Nothing more comes."""
        ...


class PlainScreen:
    """One line for each event, for logs and pipes; sessions only where something went wrong."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        self._now = now

    def scene(self, title: str) -> None:
        """A scene begins."""
        output.say(f"\n== {title}")

    def event(self, text: str) -> None:
        """Something happened."""
        output.say(f"{self._now():%H:%M:%S}  {text}")

    def session(self, session: ViewerSession) -> None:
        """A viewer's session has ended."""
        if session.is_harmed:
            self.event(harm_text(session))

    def memory(self, worker: str, num_bytes: int) -> None:
        """Shown at the end only."""

    def show(self, snapshot: Snapshot) -> None:
        """Told as events."""

    def close(self) -> None:
        """Nothing is held."""


class LiveScreen:
    """Workers, the canary and the last events, redrawn in place."""

    def __init__(self, *, now: Callable[[], datetime]) -> None:
        from rich.live import Live

        self._now = now
        self._title = "starting"
        self._snapshot = Snapshot()
        self._events: deque[str] = deque(maxlen=NUM_EVENTS)
        self._fps: dict[str, float | None] = {}
        self._memory: dict[str, int] = {}
        self._live = Live(console=output.console(is_error=True), refresh_per_second=4)
        self._live.start()

    def scene(self, title: str) -> None:
        """A scene begins."""
        self._title = title
        self._draw()

    def event(self, text: str) -> None:
        """Something happened."""
        self._events.append(f"{self._now():%H:%M:%S}  {text}")
        self._draw()

    def session(self, session: ViewerSession) -> None:
        """A viewer's session has ended."""
        self._fps[session.worker] = session.fps
        if session.is_harmed:
            self.event(harm_text(session))

    def memory(self, worker: str, num_bytes: int) -> None:
        """What the processes of a worker take."""
        self._memory[worker] = num_bytes

    def show(self, snapshot: Snapshot) -> None:
        """How things stand."""
        self._snapshot = snapshot
        self._draw()

    def close(self) -> None:
        """Leave the last picture standing."""
        self._live.stop()

    def _draw(self) -> None:
        from rich.console import Group
        from rich.text import Text

        parts: list[RenderableType] = [
            Text(self._title, style="bold"),
            self._workers(),
            *([canary_view(self._snapshot.canary)] if self._snapshot.canary else []),
            # A line each, so that the picture does not jump; the whole text is in the summary.
            *(Text(each, style="dim", no_wrap=True, overflow="ellipsis") for each in self._events),
        ]
        self._live.update(Group(*parts))

    def _workers(self) -> "Table":
        table = _table("worker", "path", "fps", "memory", "generation")
        for worker in self._snapshot.workers:
            table.add_row(
                worker.name,
                path_text(worker),
                fps_text(self._fps.get(worker.name)),
                f"{self._memory.get(worker.name, 0) // _MIB} MiB",
                _generation_text(worker),
            )
        return table


def canary_view(canary: CanarySeen) -> "Table":
    """The canary's phase and gates as a table."""
    from rich.text import Text

    table = _table(f"canary {canary.name}", output.styled(canary.phase), f"step {canary.step + 1}")
    for gate in canary.gates:
        table.add_row(gate.gate, output.styled(gate.verdict), Text(gate.reason, overflow="fold"))
    return table


def path_text(worker: WorkerSeen) -> str:
    """What the worker runs, as short as can be."""
    return ", ".join(worker.flags[flag] for flag in sorted(worker.flags)) or output.MISSING


def harm_text(session: ViewerSession) -> str:
    """What a viewer suffered, in words."""
    what = (
        f"ended {session.outcome}"
        if session.has_failed
        else f"had {fps_text(session.fps)} fps, longest gap {session.longest_gap_ms:.0f} ms"
    )
    return f"a session on {session.worker} {what} (prompt of {session.first_forward_length} tokens)"


def _generation_text(worker: WorkerSeen) -> str:
    if worker.generation >= worker.desired_generation:
        return str(worker.generation)
    return f"{worker.generation} -> {worker.desired_generation}"


def _table(*columns: "str | Text") -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table
