"""Control facts of workers: registration, desired state, what is effective, breaker trips.

Only the held-open call is `async`; it waits on a signal and reads through the thread pool.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Annotated, TypeVar

import anyio
from fastapi import APIRouter, Body, Response
from starlette.concurrency import run_in_threadpool

from controlplane.api import auth, signals
from controlplane.api.context import Context, Here
from controlplane.api.problems import BusyError
from controlplane.api.schemas import (
    EffectiveBody,
    GenerationQuery,
    IncarnationQuery,
    NamePath,
    ProbeBody,
    RegistrationBody,
    TripBody,
)
from controlplane.contract.messages import DesiredState
from controlplane.domain import errors
from controlplane.domain.errors import StaleVersionError
from controlplane.services import workers
from controlplane.store.transaction import Connection

router = APIRouter(prefix="/v1/fleets/{fleet}/workers/{worker}", tags=["workers"])
NO_CONTENT = 204
# A lease that is renewed must reach the worker well before the old one ends.
LEASE_PART = 3
LEAST_HOLD_S = 1.0
NUM_TRIES = 3
_T = TypeVar("_T")


@router.post("/registration", response_model_exclude_none=True)
def register(
    fleet: NamePath,
    worker: NamePath,
    body: Annotated[RegistrationBody, Body()],
    here: Here,
    _: auth.Worker,
) -> DesiredState:
    """Begin one life of a worker's processes."""
    _check_same("fleet", fleet, body.fleet)
    _check_same("worker", worker, body.worker)
    state, woken = _written(
        here, lambda conn, now: workers.register(conn, body, now=now, new_id=here.new_id)
    )
    _wake(here, woken)  # no nudge: a fleet that starts would tick for each of its workers
    return state


@router.get("/desired", response_model_exclude_none=True)
async def desired(
    fleet: NamePath,
    worker: NamePath,
    after: GenerationQuery,
    incarnation: IncarnationQuery,
    here: Here,
    _: auth.Worker,
) -> DesiredState:
    """What the control plane wants; held open until its generation is above `after`."""
    heard = partial(_heard, here, fleet, worker, incarnation=incarnation, after=after)
    worker_id = await run_in_threadpool(heard)
    began_at = anyio.current_time()
    hold_s = _hold_s(here)
    with here.signals.subscription(f"worker:{worker_id}") as changed:
        while True:  # bounded by `hold_s`
            state = await run_in_threadpool(_state, here, worker_id)
            if state.lease_s is not None:
                # A lapsed lease is no reason to be asked in a tight loop.
                hold_s = min(hold_s, max(LEAST_HOLD_S, state.lease_s / LEASE_PART))
            left_s = hold_s - (anyio.current_time() - began_at)
            if state.generation > after or left_s <= 0 or here.signals.is_closed:
                return state
            await signals.wait(changed, timeout_s=left_s)


@router.post("/effective", status_code=NO_CONTENT, response_class=Response)
def effective(
    fleet: NamePath,
    worker: NamePath,
    body: Annotated[EffectiveBody, Body()],
    here: Here,
    _: auth.Worker,
) -> None:
    """Take what every rank runs."""
    woken = _written(
        here,
        lambda conn, now: workers.take_effective(conn, fleet, worker, report=body, now=now),
    )
    _tell(here, woken)


@router.post("/trips", status_code=NO_CONTENT, response_class=Response)
def trip(
    fleet: NamePath,
    worker: NamePath,
    body: Annotated[TripBody, Body()],
    here: Here,
    _: auth.Worker,
) -> None:
    """Take that the worker went to its fallback by itself."""
    woken = _written(
        here, lambda conn, now: workers.take_trip(conn, fleet, worker, trip=body, now=now)
    )
    _tell(here, woken)


@router.post("/probes", status_code=NO_CONTENT, response_class=Response)
def probe(
    fleet: NamePath,
    worker: NamePath,
    body: Annotated[ProbeBody, Body()],
    here: Here,
    _: auth.Worker,
) -> None:
    """Take what came of a probe of preflight; the same probe again changes nothing."""
    _written(here, lambda conn, now: workers.take_probe(conn, fleet, worker, report=body, now=now))
    here.nudge()


def _written(here: Context, work: Callable[[Connection, datetime], _T]) -> _T:
    """What `work` answers, committed.

    A worker takes 409 for the news that it was superseded and stops for good. So a row that
    somebody else changed meanwhile is read again, and in the end the worker is asked to come back.
    """
    for _ in range(NUM_TRIES):
        try:
            with here.database.write() as conn:
                return work(conn, here.clock.now())
        except StaleVersionError:
            continue
    raise BusyError("others change the same worker: try again")


def _tell(here: Context, woken: Iterable[str]) -> None:
    _wake(here, woken)
    here.nudge()


def _wake(here: Context, woken: Iterable[str]) -> None:
    for worker_id in woken:
        here.signals.notify(f"worker:{worker_id}")


def _hold_s(here: Context) -> float:
    jitter_s = here.settings.hold_jitter_s
    # Jitter keeps five thousand calls from coming back in the same second after a restart.
    return max(0.0, here.settings.hold_s + here.randomness.uniform(-jitter_s, jitter_s))


def _heard(here: Context, fleet: str, worker: str, *, incarnation: str, after: int) -> str:
    return _written(
        here,
        lambda conn, now: workers.hear(
            conn, fleet, worker, incarnation=incarnation, after=after, now=now
        ),
    )


def _state(here: Context, worker_id: str) -> DesiredState:
    with here.database.read() as conn:
        return workers.desired(conn, worker_id, now=here.clock.now())


def _check_same(key: str, in_path: str, in_body: str) -> None:
    if in_path != in_body:
        raise errors.InvalidValueError(key, in_body, allowed=f"the path's own: {in_path}")
