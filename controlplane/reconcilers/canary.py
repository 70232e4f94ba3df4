"""Carries each live canary one step on: observe, plan, record, act.

Decides nothing: `domain.plan` does. What is recorded is recorded in one transaction, under the
version that was observed and the epoch of the leader; what is done afterwards can be done twice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from controlplane.domain.canary import Canary
from controlplane.domain.errors import StaleVersionError
from controlplane.domain.observation import Observation, Plan
from controlplane.domain.plan import plan
from controlplane.ports import NewId, Signals
from controlplane.reconcilers import recording
from controlplane.services import observations
from controlplane.store import canaries as canary_store
from controlplane.store import leader as leader_store
from controlplane.store.transaction import Database

Beat = Callable[[], None]
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Round:
    """One canary on its way through the four beats; a beat that failed leaves its field None."""

    canary: Canary
    seen: Observation | None = None
    planned: Plan | None = None
    is_recorded: bool = False
    woken: tuple[str, ...] = ()


class CanaryReconciler:
    """Moves canaries. One instance in each controller; only the leader's records stand."""

    def __init__(
        self, database: Database, *, new_id: NewId, signals: Signals, tick: timedelta
    ) -> None:
        self._database = database
        self._new_id = new_id
        self._signals = signals
        self._tick = tick

    def beats(self, now: datetime, *, epoch: int) -> Iterator[Beat]:
        """The beats of one tick, to be called in order; dropping the rest of them is a crash."""
        with self._database.read() as conn:
            live = canary_store.live(conn)
        for canary in live:
            rnd = _Round(canary=canary)
            yield lambda rnd=rnd: self._observe(rnd)  # type: ignore[misc]
            yield lambda rnd=rnd: self._plan(rnd, now)  # type: ignore[misc]
            yield lambda rnd=rnd: self._record(rnd, now, epoch)  # type: ignore[misc]
            yield lambda rnd=rnd: self._act(rnd)  # type: ignore[misc]

    def _observe(self, rnd: _Round) -> None:
        with self._database.read() as conn:
            rnd.seen = observations.observe(conn, rnd.canary, tick=self._tick)

    def _plan(self, rnd: _Round, now: datetime) -> None:
        if rnd.seen is not None:
            rnd.planned = plan(rnd.seen, now=now)

    def _record(self, rnd: _Round, now: datetime, epoch: int) -> None:
        if rnd.seen is None or rnd.planned is None:
            return
        decision = recording.decided(rnd.seen, rnd.planned, new_id=self._new_id, now=now)
        try:
            with self._database.write() as conn:
                leader_store.require(conn, epoch=epoch)
                rnd.woken = recording.record(conn, rnd.seen, rnd.planned, decision, now=now)
            rnd.is_recorded = True
        except StaleVersionError:
            # A person or another controller moved it first; the next tick sees that.
            _log.info("canary_round_dropped", canary=rnd.canary.name, reason="stale_version")

    def _act(self, rnd: _Round) -> None:
        for worker_id in rnd.woken:
            self._signals.notify(f"worker:{worker_id}")
        if not rnd.is_recorded or rnd.planned is None or rnd.planned.event is None:
            return
        self._signals.notify("canaries")
        _log.info(
            "canary_moved",
            canary=rnd.canary.name,
            happened=rnd.planned.event.value,
            phase=rnd.planned.canary.phase.value,
            reason=rnd.planned.reason,
        )
