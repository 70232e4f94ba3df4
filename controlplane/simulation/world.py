"""A control plane and its workers on one timeline; the controller can crash between any two beats.

Real services, reconcilers and store; only the network, the workers and time are stood in for.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    ProbeReport,
    Registration,
)
from controlplane.contract.records import Record
from controlplane.contract.vocabulary import EventName
from controlplane.reconcilers.canary import CanaryReconciler
from controlplane.reconcilers.fleet import FleetReconciler
from controlplane.services import ingest, workers
from controlplane.simulation.network import Identity
from controlplane.simulation.timeline import Timeline
from controlplane.simulation.worker import Behaviour, SimulatedWorker
from controlplane.store import leader as leader_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database

START = datetime(2026, 11, 2, 9, 0, tzinfo=UTC)
Beat = Callable[[], None]
# How often a condition is looked at: looking costs more than an event.
_LOOK_S = 0.2


class World:
    """One fleet, one controller, one database.

    `crashes` decides after each beat whether the controller dies there: it is given the number of
    beats so far. A dead controller drops what it had in memory and is back after `restart_s`.
    """

    def __init__(
        self,
        database: Database,
        *,
        seed: int,
        behaviours: Mapping[str, Behaviour],
        tick: timedelta = timedelta(seconds=1),
        crashes: Callable[[int], bool] = lambda _num_beats: False,
    ) -> None:
        self.database = database
        self.randomness = random.Random(seed)  # noqa: S311 - a seed is a run
        self.timeline = Timeline(start=START, randomness=self.randomness)
        self.workers: dict[str, SimulatedWorker] = {}
        self.num_beats = 0
        self.num_crashes = 0
        self._behaviours = behaviours
        self._tick = tick
        self._crashes = crashes
        self._num_ids = 0
        self._num_controllers = 0

    # Ports.

    def new_id(self) -> str:
        """Ids that sort by time, as `NewId` promises."""
        self._num_ids += 1
        return f"id-{self._num_ids:012d}"

    def notify(self, topic: str) -> None:
        """Wake the worker that waits for `topic`, soon."""
        kind, _, worker_id = topic.partition(":")
        if kind == "worker":
            self.timeline.after(0.01, lambda: self._wake(worker_id))

    def _wake(self, worker_id: str) -> None:
        with self.database.read() as conn:
            name = worker_store.by_id(conn, worker_id).name
        self.workers[name].wake()

    # The fleet.

    def add_workers(self, fleet: str, names: Sequence[str]) -> None:
        """Boot workers of `fleet`, which must have been adopted."""
        for name in names:
            worker = SimulatedWorker(
                name=name,
                fleet=fleet,
                timeline=self.timeline,
                network=self,
                randomness=self.randomness,
                behaviours=self._behaviours,
            )
            self.workers[name] = worker
            worker.boot()

    # The network, as `worker.Network` asks for it.

    def register(self, registration: Registration) -> DesiredState:
        """A worker's life begins."""
        with self.database.write() as conn:
            state, woken = workers.register(
                conn, registration, now=self.timeline.now(), new_id=self.new_id
            )
        self._notify_all(woken)
        return state

    def desired(self, identity: Identity) -> DesiredState:
        """Answer a call at once; the timeline holds no call open."""
        now = self.timeline.now()
        with self.database.write() as conn:
            worker_id = workers.hear(
                conn,
                identity.fleet,
                identity.worker,
                incarnation=identity.incarnation,
                after=0,
                now=now,
            )
            return workers.desired(conn, worker_id, now=now)

    def report(self, identity: Identity, report: EffectiveReport) -> None:
        """Take what all ranks run."""
        with self.database.write() as conn:
            woken = workers.take_effective(
                conn, identity.fleet, identity.worker, report=report, now=self.timeline.now()
            )
        self._notify_all(woken)

    def trip(self, identity: Identity, trip: BreakerTrip) -> None:
        """Take that a breaker opened."""
        with self.database.write() as conn:
            woken = workers.take_trip(
                conn, identity.fleet, identity.worker, trip=trip, now=self.timeline.now()
            )
        self._notify_all(woken)

    def probe(self, identity: Identity, report: ProbeReport) -> None:
        """Take what came of a probe."""
        with self.database.write() as conn:
            workers.take_probe(
                conn, identity.fleet, identity.worker, report=report, now=self.timeline.now()
            )

    def record(self, identity: Identity, event: EventName, record: Record) -> None:
        """Take one record as a batch of its own."""
        received = ingest.Received(
            event=event,
            incarnation=identity.incarnation,
            hardware=identity.hardware,
            stack=identity.stack,
            record=record,
        )
        result = ingest.ingest_logs(
            self.database,
            identity=ingest.Writer(fleet=identity.fleet, worker=identity.worker),
            records=[received],
            now=self.timeline.now(),
        )
        assert not result.rejected, f"a simulated record was rejected: {result.rejected}"

    def _notify_all(self, worker_ids: Sequence[str]) -> None:
        for worker_id in worker_ids:
            self.notify(f"worker:{worker_id}")

    # The controller.

    def start_controller(self) -> None:
        """Tick from now on, crashing where `crashes` says."""
        self._num_controllers += 1
        holder = f"controller-{self._num_controllers}"
        reconcilers = (
            CanaryReconciler(self.database, new_id=self.new_id, signals=self, tick=self._tick),
            FleetReconciler(
                self.database,
                signals=self,
                lost_after=timedelta(seconds=60),
                tick=self._tick,
            ),
        )
        self._begin_tick(holder, reconcilers)

    def _begin_tick(
        self, holder: str, reconcilers: tuple[CanaryReconciler, FleetReconciler]
    ) -> None:
        now = self.timeline.now()
        with self.database.write() as conn:
            # A restarted controller does not wait for its own old lease: that is a later test's.
            epoch = leader_store.acquire(conn, holder=holder, now=now, ttl=self._tick)
        beats = _chained(reconcilers, now, epoch) if epoch is not None else iter(())
        self._next_beat(
            beats, lambda: self._begin_tick(holder, reconcilers), self._tick.total_seconds()
        )

    def _next_beat(self, beats: Iterator[Beat], again: Beat, tick_s: float) -> None:
        beat = next(beats, None)
        if beat is None:
            self.timeline.after(tick_s, again)
            return
        beat()
        self.num_beats += 1
        if self._crashes(self.num_beats):
            self.num_crashes += 1
            self.timeline.after(2.0, self.start_controller)
            return
        # The next beat is an event of its own, so that the world goes on between the two.
        self.timeline.after(0.001, lambda: self._next_beat(beats, again, tick_s))

    # Time.

    def run(self, *, seconds: float, check: Callable[[], None] | None = None) -> None:
        """Let virtual time pass; `check` is called after each event."""
        until = self.timeline.now() + timedelta(seconds=seconds)
        while self.timeline.now() < until and self.timeline.step():
            if check is not None:
                check()

    def run_until(self, condition: Callable[[], bool], *, within_s: float) -> None:
        """Let time pass until `condition` holds.

        Raises: TimeoutError after `within_s` virtual seconds.
        """
        until = self.timeline.now() + timedelta(seconds=within_s)
        while not condition():
            self.run(seconds=_LOOK_S)
            if self.timeline.now() > until:
                message = f"not reached within {within_s} virtual seconds"
                raise TimeoutError(message)


def _chained(
    reconcilers: tuple[CanaryReconciler, FleetReconciler], now: datetime, epoch: int
) -> Iterator[Beat]:
    for reconciler in reconcilers:
        yield from reconciler.beats(now, epoch=epoch)
