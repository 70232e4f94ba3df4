"""What workers tell and ask, and how they are shown to people."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    ProbeReport,
    Registration,
)
from controlplane.domain import preflight
from controlplane.domain.errors import ConflictError, InvalidValueError, NotFoundError
from controlplane.domain.fleet import Worker
from controlplane.ports import NewId
from controlplane.services import desired_states, policies
from controlplane.store import canaries as canary_store
from controlplane.store import desired_states as desired_store
from controlplane.store import fleets as fleet_store
from controlplane.store import probes as probe_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection


def register(
    conn: Connection, registration: Registration, *, now: datetime, new_id: NewId
) -> tuple[DesiredState, tuple[str, ...]]:
    """Begin one life of a worker's processes.

    Returns: what it should run, and ids of all workers whose desired state is another now.

    Raises:
        NotFoundError: the fleet has not been adopted.
        ConflictError: a newer incarnation has registered, or the fleet is a sample.
        InvalidValueError: the generation is out of bounds.
    """
    if fleet_store.get(conn, registration.fleet).is_sample:
        raise ConflictError(f"fleet {registration.fleet} is sample data: it takes no workers")
    worker = worker_store.register(conn, registration=registration, worker_id=new_id(), now=now)
    woken = desired_states.refresh_worker(conn, worker_id=worker.id, now=now)
    return desired(conn, worker.id, now=now), woken


def hear(
    conn: Connection, fleet: str, name: str, *, incarnation: str, after: int, now: datetime
) -> str:
    """Record that the worker is there and has seen generation `after`. Returns its id.

    Raises:
        NotFoundError: it has not registered.
        ConflictError: a newer incarnation has registered.
        InvalidValueError: the generation is out of bounds.
    """
    worker = _present(conn, fleet, name, incarnation=incarnation)
    worker_store.touch(conn, worker_id=worker.id, now=now)
    if after > worker.desired_generation:
        # A database that was restored is behind its workers: they refuse what it says as old until
        # it says the same under a number that they have not seen.
        worker_store.note_generation(conn, worker_id=worker.id, generation=after)
        desired_states.refresh_worker(conn, worker_id=worker.id, now=now)
    return worker.id


def desired(conn: Connection, worker_id: str, *, now: datetime) -> DesiredState:
    """What the worker should run, with what is left of the lease of an unproven variant.

    Raises:
        NotFoundError: no such worker.
    """
    stored = desired_store.get(conn, worker_id=worker_id)
    if stored is None:
        return _as_it_is(worker_store.by_id(conn, worker_id))
    if stored.canary_id is None:
        return stored.desired
    canary = canary_store.get(conn, name_or_id=stored.canary_id)
    left = canary.lease_until - now if canary.lease_until else timedelta(0)
    # A clock that was set back must not make a lease of seconds one of years.
    left = min(left, policies.of_digest(conn, canary.policy_digest).limits.lease)
    return stored.desired.model_copy(update={"lease_s": max(0.0, left.total_seconds())})


def generations(conn: Connection) -> Mapping[str, int]:
    """The generation of what each worker should run, by worker id."""
    return desired_store.generations(conn)


def take_effective(
    conn: Connection, fleet: str, name: str, *, report: EffectiveReport, now: datetime
) -> tuple[str, ...]:
    """Record what every rank runs; a report that comes late changes nothing.

    Returns: ids of workers whose desired state is another now.

    Raises:
        NotFoundError: it has not registered.
        ConflictError: a newer incarnation has registered.
        InvalidValueError: the generation is out of bounds.
    """
    worker = _present(conn, fleet, name, incarnation=report.incarnation)
    worker_store.record_effective(conn, worker_id=worker.id, report=report, now=now)
    if worker.is_break_glass == report.is_break_glass:
        return ()
    return desired_states.refresh_worker(conn, worker_id=worker.id, now=now)


def take_trip(
    conn: Connection, fleet: str, name: str, *, trip: BreakerTrip, now: datetime
) -> tuple[str, ...]:
    """Record that the worker went to its fallback by itself; a repeat is not a second trip.

    Returns: ids of workers whose desired state is another now.

    Raises:
        NotFoundError: it has not registered.
        ConflictError: the incarnation is not one of this worker.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    if not worker_store.record_trip(conn, worker_id=worker.id, trip=trip, now=now):
        return ()
    return desired_states.refresh_worker(conn, worker_id=worker.id, now=now)


def take_probe(
    conn: Connection, fleet: str, name: str, *, report: ProbeReport, now: datetime
) -> bool:
    """Keep what came of a probe. Returns False for a repeat, which changes nothing.

    One that comes late is kept, too: a canary that is held on it goes on or back by it.

    Raises:
        NotFoundError: the worker has not registered.
        ConflictError: a newer incarnation has registered.
        InvalidValueError: the worker was not asked for that probe.
    """
    worker = _present(conn, fleet, name, incarnation=report.incarnation)
    _check_asked(conn, worker, report)
    return probe_store.insert(conn, worker_id=worker.id, report=report, now=now)


def list_page(
    conn: Connection, fleet: str, *, after: str | None, limit: int
) -> tuple[Mapping[str, object], ...]:
    """Up to `limit` workers by name, from the one after `after`.

    Raises:
        NotFoundError: no fleet of that name.
    """
    fleet_store.get(conn, fleet)
    found = [
        worker
        for worker in worker_store.in_fleet(conn, fleet=fleet)
        if after is None or worker.name > after
    ]
    return tuple(shown(worker) for worker in found[:limit])


def show(conn: Connection, fleet: str, name: str) -> Mapping[str, object]:
    """One worker. Raises: NotFoundError."""
    return shown(worker_store.get(conn, fleet=fleet, name=name))


def explain(conn: Connection, fleet: str, name: str, *, now: datetime) -> Mapping[str, object]:
    """For each flag: variant, the layer that won, its reason, and what is told and effective.

    Resolved afresh: the stored reasons are those of the last flip, and a layer may speak since that
    wants what is run already.

    Raises:
        NotFoundError: no such fleet or worker.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    stored = desired_store.get(conn, worker_id=worker.id)
    resolution = desired_states.situation(conn, fleet=fleet).resolve(worker, now=now)
    return {
        "fleet": fleet,
        "worker": name,
        "generation": worker.desired_generation,
        "effective_generation": worker.effective_generation,
        "is_effective": worker.is_effective(),
        "experiment": stored.desired.experiment if stored else None,
        "reasons": [
            {
                "flag": choice.flag,
                "variant": choice.variant,
                "layer": choice.layer,
                "reason": choice.reason,
                "desired": worker.desired_flags.get(choice.flag),
                "effective": worker.effective_flags.get(choice.flag),
            }
            for choice in resolution.choices
        ],
    }


def shown(worker: Worker) -> Mapping[str, object]:
    """What answers say of a worker."""
    fields = {name: getattr(worker, name) for name in Worker.__dataclass_fields__}
    return {**fields, "is_effective": worker.is_effective()}


def _present(conn: Connection, fleet: str, name: str, *, incarnation: str) -> Worker:
    worker = worker_store.get(conn, fleet=fleet, name=name)
    if worker.incarnation == incarnation:
        return worker
    if not worker_store.has_incarnation(conn, worker_id=worker.id, incarnation=incarnation):
        # Not an older life but one that this database never saw, or forgot in a restore: told that
        # it was superseded, a worker would stop for good.
        raise NotFoundError("incarnation", incarnation)
    raise ConflictError(
        f"{name} lives as incarnation {worker.incarnation}, not {incarnation}: stop this one"
    )


def _check_asked(conn: Connection, worker: Worker, report: ProbeReport) -> None:
    try:
        canary = canary_store.get(conn, name_or_id=report.canary)
    except NotFoundError:
        raise InvalidValueError("canary", report.canary, allowed="one that asked") from None
    exposed = canary_store.exposed(conn, canary_id=canary.id)
    is_asked = any(exposure.worker_id == worker.id for exposure in exposed)
    if not is_asked or not preflight.has_asked(canary, report.probe):
        allowed = f"a probe that a canary asked of {worker.name}"
        raise InvalidValueError("probe", report.probe, allowed=allowed)


def _as_it_is(worker: Worker) -> DesiredState:
    """Nothing has been decided yet: it goes on with what it started with."""
    return DesiredState(
        fleet=worker.fleet,
        worker=worker.name,
        generation=worker.desired_generation,
        flags=dict(worker.effective_flags),
    )
