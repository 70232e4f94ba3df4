"""The supervisor's view of one group of processes, from its fork to its end. No torch.

Notices what goes wrong and finds the first cause; what to do then is the engine's to say.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from worker.config import WorkerConfig
from worker.engine import reports, watchdog, wiring
from worker.engine.api import FaultKind
from worker.engine.launcher import ForkServerClient
from worker.engine.link import Link
from worker.engine.reports import FaultReport
from worker.parallel import board, channel
from worker.parallel.channel import Message, PeerLostError

# How long the process that only lost its peer is believed to be the only one with a story.
_CAUSE_WAIT_S = 0.5
_LOOKS_PER_LIMIT = 5


class Group:
    """Links, pids and board of one launch."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        launch: int,
        kept: int,
        on_message: Callable[[int, Message], None],
        on_failed: Callable[[int, FaultReport], None],
    ) -> None:
        """`on_failed` is called once, with the index and the reason of the first cause.

        `kept` is the memory of the last latents; it stays the caller's.
        """
        self.launch = launch
        self.pids: dict[str, int] = {}
        self._kept = kept
        self._key = 0  # of the fork server, once it was asked for this group
        self._config = config
        self._on_message, self._on_failed = on_message, on_failed
        self._links: list[Link] = []
        self._board: board.Board | None = None
        self._reports: dict[int, FaultReport] = {}
        self._has_failed = False
        self._timers: set[asyncio.TimerHandle] = set()
        self._watch: asyncio.Task[None] | None = None

    async def fork(
        self, server: ForkServerClient, flags: Mapping[str, str], *, generation: int
    ) -> None:
        """Fork every process of the group. Raises: LaunchError."""
        num_processes = wiring.num_processes(flags, num_ranks=self._config.num_ranks)
        lines = board.create(num_processes)
        self._board = board.Board(lines, num_lines=num_processes)
        self._key = server.new_key()
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            theirs.callback(os.close, lines)
            pairs = [channel.pair() for _ in range(num_processes)]
            for near, far in pairs:
                ours.enter_context(near)
                theirs.enter_context(far)
            self.pids = await server.launch(
                self._config,
                key=self._key,
                launch=self.launch,
                flags=flags,
                generation=generation,
                fds=[lines, self._kept, *(far.fileno() for _, far in pairs)],
            )
            ours.pop_all()  # the group is there: from now on its links own the near ends
        for index, (near, _) in enumerate(pairs):
            self._links.append(self._linked(index, near))

    def send(self, index: int, kind: str, **fields: Any) -> None:
        """Tell one process something; one that cannot be told counts as lost."""
        try:
            self._links[index].send(Message(kind=kind, fields=fields))
        except PeerLostError as error:
            # Not a word of its own: if it has gone, its end of file or its last words still come.
            self._fail_later(index, FaultReport(kind=reports.PEER_LOST, detail=str(error)))

    def watch(self) -> None:
        """Begin to look for a process that hangs; call once all are ready."""
        self._watch = asyncio.get_running_loop().create_task(self._watch_board())

    async def end(self, server: ForkServerClient) -> dict[str, int]:
        """Kill and reap every process; returns how each had ended, by name."""
        self._has_failed = True  # what they say now is not news
        if self._watch:
            self._watch.cancel()
        for timer in self._timers:
            timer.cancel()
        # Stopped before the links close: none of them shall find time to complain.
        statuses = await server.end(self._key)
        for link in self._links:
            link.close()
        if self._board:
            self._board.close()
            self._board = None
        return statuses

    def _linked(self, index: int, ours: Any) -> Link:
        return Link(
            ours,
            on_message=lambda message: self._heard(index, message),
            on_lost=lambda: self._lost(index),
        )

    def _heard(self, index: int, message: Message) -> None:
        if message.kind == reports.FAULT:
            self._report(index, FaultReport(**message.fields))
        else:
            self._on_message(index, message)

    def _lost(self, index: int) -> None:
        """End of file: a process that has told no reason was killed."""
        if index not in self._reports:
            name = wiring.name(index, num_ranks=self._config.num_ranks)
            detail = f"{name} ended without a word"
            self._report(index, FaultReport(kind=FaultKind.RANK_DIED.value, detail=detail))

    def _report(self, index: int, report: FaultReport) -> None:
        self._reports.setdefault(index, report)
        if report.is_cause:
            self._fail(index, report)
        else:
            self._fail_later(index, report)

    def _fail_later(self, index: int, report: FaultReport) -> None:
        timer = asyncio.get_running_loop().call_later(
            _CAUSE_WAIT_S, lambda: self._fail_for(index, report)
        )
        self._timers.add(timer)

    def _fail_for(self, index: int, report: FaultReport) -> None:
        """Nobody gave a cause in time: a process that has gone without a word is one."""
        for other, pid in enumerate(self.pids.values()):
            if other not in self._reports and watchdog.is_gone(pid):
                self._lost(other)
        self._fail(index, report)

    def _fail(self, index: int, report: FaultReport) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._on_failed(index, report)

    async def _watch_board(self) -> None:
        limit_s = self._config.watchdog_s
        pause_s = limit_s / _LOOKS_PER_LIMIT
        looked_s = time.monotonic()
        while self._board:
            await asyncio.sleep(pause_s)
            # If this process was itself held up, so may all have been: look again before judging.
            was_late = time.monotonic() - looked_s > 2 * pause_s
            looked_s = time.monotonic()
            if not was_late:
                self._judge(limit_s)

    def _judge(self, limit_s: float) -> None:
        assert self._board, "the board is closed"
        stopped = {index: watchdog.is_stopped(pid) for index, pid in enumerate(self.pids.values())}
        hang = watchdog.found(
            self._board.lines(), now_ns=time.monotonic_ns(), limit_s=limit_s, stopped=stopped
        )
        if hang:
            name = wiring.name(hang.index, num_ranks=self._config.num_ranks)
            detail = (
                f"{name} showed no life for {hang.silent_s:.2f} s in step {hang.progress.step}"
                f"{' and is stopped' if hang.is_stopped else ''}"
            )
            self._fail(hang.index, FaultReport(kind=FaultKind.RANK_HUNG.value, detail=detail))


def ending(status: int | None) -> str:
    """How a process ended, in words; `status` is an exit code or minus a signal."""
    if status is None:
        return "unknown"
    return f"exit code {status}" if status >= 0 else f"signal {signal.Signals(-status).name}"
