"""Keeps every fleet at what its layers say: expired pins, ramps, workers that fell silent."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.ports import Signals
from controlplane.reconcilers.silence import Silence
from controlplane.services import desired_states
from controlplane.store import fleets as fleet_store
from controlplane.store import leader as leader_store
from controlplane.store import sessions as session_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Database

Beat = Callable[[], None]


@dataclass(slots=True)
class _Round:
    fleet: str
    woken: tuple[str, ...] = ()


class FleetReconciler:
    """Refreshes desired states and gives up sessions of workers that fell silent."""

    def __init__(
        self, database: Database, *, signals: Signals, lost_after: timedelta, tick: timedelta
    ) -> None:
        self._database = database
        self._signals = signals
        self._lost_after = lost_after
        self._silence = Silence(tick=tick)

    def beats(self, now: datetime, *, epoch: int) -> Iterator[Beat]:
        """The beats of one tick, to be called in order; dropping the rest of them is a crash."""
        self._silence.look(now)
        with self._database.read() as conn:
            names = [fleet.name for fleet in fleet_store.list_all(conn)]
        for name in names:
            rnd = _Round(fleet=name)
            yield lambda rnd=rnd: self._record(rnd, now, epoch)  # type: ignore[misc]
            yield lambda rnd=rnd: self._act(rnd)  # type: ignore[misc]

    def _record(self, rnd: _Round, now: datetime, epoch: int) -> None:
        with self._database.write() as conn:
            leader_store.require(conn, epoch=epoch)
            workers = worker_store.in_fleet(conn, fleet=rnd.fleet)
            serving = [worker for worker in workers if worker.num_open_sessions]
            silence = self._silence.of(rnd.fleet, serving)
            for worker in serving:
                if silence[worker.id] > self._lost_after:
                    session_store.close_lost(conn, incarnation=worker.incarnation, now=now)
            rnd.woken = desired_states.refresh(conn, fleet=rnd.fleet, now=now)

    def _act(self, rnd: _Round) -> None:
        for worker_id in rnd.woken:
            self._signals.notify(f"worker:{worker_id}")
