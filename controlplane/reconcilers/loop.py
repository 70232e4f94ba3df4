"""Runs the reconcilers by a timer and at a nudge; APScheduler holds the timer and nothing else."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Protocol

import structlog
from apscheduler.schedulers.background import BackgroundScheduler

from controlplane.ports import Clock
from controlplane.store import leader as leader_store
from controlplane.store.transaction import Database

# A nudge that comes during a tick makes another one at once; a stream of them must not starve the
# timer, whose next run comes anyway.
MAX_TICKS_A_RUN = 5
_log = structlog.get_logger(__name__)


class Reconciler(Protocol):
    """Anything with beats."""

    def beats(self, now: datetime, *, epoch: int) -> Iterator[Callable[[], None]]:
        """The beats of one tick, in order."""
        ...


class Loop:
    """Ticks while it is the leader. A failed tick is logged and left to the next one."""

    def __init__(
        self,
        database: Database,
        reconcilers: tuple[Reconciler, ...],
        *,
        clock: Clock,
        holder: str,
        tick: timedelta,
        lease: timedelta = timedelta(seconds=15),
    ) -> None:
        self._database = database
        self._reconcilers = reconcilers
        self._clock = clock
        self._holder = holder
        self._tick = tick
        self._lease = lease
        self._dirty = threading.Event()
        self._running = threading.Lock()
        self._scheduler = BackgroundScheduler(timezone="UTC", daemon=True)
        self._job = None
        self._stopping = threading.Event()
        self._has_run = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="loop-watch", daemon=True)
        self.last_tick_at: datetime | None = None

    def start(self) -> None:
        """Tick every `tick` from now on, in a thread of its own."""
        self._job = self._scheduler.add_job(
            self.run,
            "interval",
            seconds=self._tick.total_seconds(),
            # A nudge at the very end of a run starts a second one, which waits for the first: with
            # one instance the scheduler would drop it.
            max_instances=2,
            coalesce=True,
            misfire_grace_time=None,
        )
        self._scheduler.start()
        self._watcher.start()
        self.nudge()

    def stop(self) -> None:
        """Let the tick in flight end, then stop."""
        self._stopping.set()
        if self._scheduler.running:
            self._watcher.join()
            self._scheduler.shutdown(wait=True)

    def nudge(self) -> None:
        """Tick soon. Safe from any thread; never lost, even during a tick."""
        self._dirty.set()
        if self._job is not None and self._scheduler.running:
            self._job.modify(next_run_time=self._clock.now())

    def run(self) -> None:
        """Tick once, and again while nudged meanwhile, at most `MAX_TICKS_A_RUN` times."""
        with self._running:
            self._has_run.set()
            for _ in range(MAX_TICKS_A_RUN):
                self._dirty.clear()
                self.tick()
                if not self._dirty.is_set():
                    return

    def tick(self) -> None:
        """One tick of every reconciler, if this controller leads."""
        now = self._clock.now()
        epoch = self._lead(now)
        if epoch is None:
            return
        for reconciler in self._reconcilers:
            self._carry_out(lambda of=reconciler: self._round(of, now, epoch), of=reconciler)  # type: ignore[misc]
        self.last_tick_at = now

    def _round(self, reconciler: Reconciler, now: datetime, epoch: int) -> None:
        for beat in reconciler.beats(now, epoch=epoch):
            self._carry_out(beat, of=reconciler)

    def _carry_out(self, beat: Callable[[], None], *, of: Reconciler) -> None:
        try:
            beat()
        except Exception:  # noqa: BLE001 - one of the three places that catch (style.md)
            # A broken invariant ends its round, whose later beats find nothing to do; the other
            # rounds go on, and the next tick observes afresh.
            _log.exception("beat_failed", reconciler=type(of).__name__)

    def _watch(self) -> None:
        """Nudge when no run has begun for two ticks.

        The scheduler reckons in wall time: set back by an hour, it would wait for an hour.
        """
        while not self._stopping.wait(2 * self._tick.total_seconds()):
            if not self._has_run.is_set():
                self.nudge()
            self._has_run.clear()

    def take_over(self) -> None:
        """Lead at the next tick; only for who knows that no other controller runs."""
        with self._database.write() as conn:
            leader_store.vacate(conn, now=self._clock.now())

    def _lead(self, now: datetime) -> int | None:
        with self._database.write() as conn:
            return leader_store.acquire(conn, holder=self._holder, now=now, ttl=self._lease)
