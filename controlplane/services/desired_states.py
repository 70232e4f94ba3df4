"""Keeps the stored desired state of each worker equal to what the layers say.

Called in the transaction of whatever changes a layer, so that a decision and the states that follow
from it are recorded together or not at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.contract.messages import Arm, DesiredState, Experiment, FlagReason, Probe
from controlplane.contract.vocabulary import ARM_CANARY, ARM_CONTROL
from controlplane.domain import desired, preflight
from controlplane.domain.canary import RUNNING, Canary, Phase
from controlplane.domain.desired import Assignment, Layer, Layers, Resolution, Trial
from controlplane.domain.flag import Flag
from controlplane.domain.fleet import Fleet, Worker
from controlplane.domain.ledger import Standing
from controlplane.domain.policy import Policy
from controlplane.services import policies
from controlplane.store import canaries as canary_store
from controlplane.store import desired_states as desired_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.desired_states import StoredState
from controlplane.store.transaction import Connection

# A fleet whose promoted variant came without a policy of its own ramps at this pace.
DEFAULT_FLIPS_PER_MINUTE = 60
_RAMP_WINDOW = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """Everything that may speak for the workers of one fleet, read in one transaction."""

    fleet: Fleet
    catalogue: tuple[Flag, ...]
    qualifications: frozenset[desired.Qualification]
    disqualifications: frozenset[desired.Qualification]
    assignments: Mapping[str, Assignment]  # worker id -> the canary it is exposed to
    workers: tuple[Worker, ...]

    def resolve(self, worker: Worker, *, now: datetime) -> Resolution:
        """What `worker` should run, by its layers."""
        layers = Layers(
            fleet=self.fleet,
            qualifications=self.qualifications,
            disqualifications=self.disqualifications,
            assignment=self.assignments.get(worker.id),
        )
        return desired.resolve(worker, catalogue=self.catalogue, layers=layers, now=now)


def situation(
    conn: Connection, *, fleet: str, workers: tuple[Worker, ...] | None = None
) -> Situation:
    """Read what the desired states of `fleet`, or of those `workers` of it, follow from.

    Raises:
        NotFoundError: no fleet of that name.
    """
    if workers is None:
        workers = worker_store.in_fleet(conn, fleet=fleet)
    known = qualification_store.standings(conn, fleet=fleet)
    return Situation(
        fleet=fleet_store.get(conn, fleet),
        catalogue=flag_store.catalogue(conn),
        qualifications=_on_record(known, Standing.QUALIFIED),
        disqualifications=_on_record(known, Standing.DISQUALIFIED),
        assignments=_assignments(conn, fleet=fleet, workers=workers),
        workers=workers,
    )


def refresh(conn: Connection, *, fleet: str, now: datetime) -> tuple[str, ...]:
    """Write the desired states of `fleet` that are no longer what the layers say.

    Towards the fallback everything is written at once; towards a promoted variant no more workers a
    minute than the ramp allows, the rest stay for a later call.

    Returns: ids of the workers whose desired state is another now.

    Raises:
        NotFoundError: no fleet of that name.
    """
    seen = situation(conn, fleet=fleet)
    stored = desired_store.in_fleet(conn, fleet=fleet)
    return _refreshed(
        conn, seen, stored=stored, late=desired_store.overtaken(conn, fleet=fleet), now=now
    )


def refresh_worker(conn: Connection, *, worker_id: str, now: datetime) -> tuple[str, ...]:
    """As `refresh`, for one worker: what concerns it alone costs the same in a fleet of any size.

    Raises:
        NotFoundError: no such worker.
    """
    worker = worker_store.by_id(conn, worker_id)
    seen = situation(conn, fleet=worker.fleet, workers=(worker,))
    stored = desired_store.get(conn, worker_id=worker_id)
    late = desired_store.overtaken(conn, fleet=worker.fleet, worker_id=worker_id)
    return _refreshed(conn, seen, stored={worker_id: stored} if stored else {}, late=late, now=now)


def _refreshed(
    conn: Connection,
    seen: Situation,
    *,
    stored: Mapping[str, StoredState],
    late: frozenset[str],
    now: datetime,
) -> tuple[str, ...]:
    num_left: int | None = None  # asked for before the first write: most ticks write nothing
    changed = []
    for worker in seen.workers:
        resolution = seen.resolve(worker, now=now)
        before = stored.get(worker.id)
        wanted = _message(worker, resolution)
        if before and worker.id not in late and _is_same(before.desired, wanted):
            continue
        if num_left is None:
            num_left = _ramp_left(conn, seen, now=now)
        is_ramped = _is_ramped(worker, resolution, seen.catalogue)
        if is_ramped and num_left <= 0:
            continue
        num_left -= is_ramped
        _write(conn, worker, resolution, wanted, now=now)
        changed.append(worker.id)
    return tuple(changed)


def _write(
    conn: Connection,
    worker: Worker,
    resolution: Resolution,
    wanted: DesiredState,
    *,
    now: datetime,
) -> None:
    generation = desired_store.next_generation(conn, worker_id=worker.id)
    # Only what viewers meet needs a lease: a probe ends by itself.
    experiment = resolution.experiment if wanted.experiment else None
    desired_store.put(
        conn,
        worker_id=worker.id,
        desired=wanted.model_copy(update={"generation": generation}),
        canary_id=experiment.canary if experiment else None,
        now=now,
    )
    highest = max(resolution.choices, key=lambda choice: list(Layer).index(choice.layer))
    history.append_flip(
        conn,
        worker_id=worker.id,
        generation=generation,
        flags_from=worker.desired_flags,
        flags_to=resolution.flags,
        layer=highest.layer,
        reason=highest.reason,
        now=now,
    )


def _on_record(
    known: Mapping[desired.Qualification, Standing], standing: Standing
) -> frozenset[desired.Qualification]:
    return frozenset(one for one, its_standing in known.items() if its_standing is standing)


def _assignments(
    conn: Connection, *, fleet: str, workers: Sequence[Worker]
) -> dict[str, Assignment]:
    assignments = {}
    for canary in canary_store.live(conn):
        if canary.fleet != fleet or canary.phase not in (*RUNNING, Phase.PREFLIGHT):
            continue
        assignment = _assignment(conn, canary)
        if canary.phase is Phase.PREFLIGHT and assignment.trial is None:
            continue  # nothing is run before the first step, not even by who was exposed once
        stratum = (canary.hardware, canary.stack)
        # One that came back on another stack is no longer what the canary compares.
        of_stratum = {worker.id for worker in workers if worker.stratum == stratum}
        for exposure in canary_store.exposed(conn, canary_id=canary.id):
            if exposure.worker_id in of_stratum:
                assignments[exposure.worker_id] = assignment
    return assignments


def _assignment(conn: Connection, canary: Canary) -> Assignment:
    policy = policies.of_digest(conn, canary.policy_digest)
    step = policy.steps[canary.step]
    return Assignment(
        canary=canary.id,
        name=canary.name,
        salt=canary.salt,
        variants=canary.tested,
        arm_share=step.arm_share,
        traffic=step.traffic,
        trial=_trial(canary, policy),
    )


def _trial(canary: Canary, policy: Policy) -> Trial | None:
    if canary.phase is not Phase.PREFLIGHT or policy.preflight is None or canary.flag is None:
        return None
    probe = preflight.probe_id(canary)
    # Any seed will do, but the same for the same probe: a state that changed by itself would flip.
    return Trial(
        id=probe,
        flag=canary.flag,
        lengths=policy.preflight.lengths,
        seed=canary.version,
        retained_at_most=policy.preflight.retained_at_most,
    )


def _message(worker: Worker, resolution: Resolution) -> DesiredState:
    probe = _probe(resolution)
    return DesiredState(
        fleet=worker.fleet,
        worker=worker.name,
        generation=0,  # given when it is written
        flags=resolution.flags,
        experiment=_experiment(resolution),
        probe=probe,
        is_admitting=not (worker.is_cordoned or worker.is_quarantined or probe),
        reasons=[
            FlagReason(flag=c.flag, variant=c.variant, layer=c.layer, reason=c.reason)
            for c in resolution.choices
        ],
    )


def _experiment(resolution: Resolution) -> Experiment | None:
    assigned = resolution.experiment
    if assigned is None or assigned.trial is not None:
        return None
    share = assigned.arm_share
    canary = Arm(name=ARM_CANARY, share=share, flags={**resolution.flags, **assigned.variants})
    control = Arm(name=ARM_CONTROL, share=1 - share, flags=resolution.flags)
    return Experiment(
        canary=assigned.canary,
        salt=assigned.salt,
        traffic="synthetic" if assigned.traffic == "synthetic" else "live",
        arms=[canary] if share >= 1 else [canary, control],
    )


def _probe(resolution: Resolution) -> Probe | None:
    assigned = resolution.experiment
    if assigned is None or assigned.trial is None:
        return None
    return Probe(
        id=assigned.trial.id,
        canary=assigned.canary,
        flag=assigned.trial.flag,
        flags={**resolution.flags, **assigned.variants},
        lengths=list(assigned.trial.lengths),
        seed=assigned.trial.seed,
        retained_at_most=assigned.trial.retained_at_most,
    )


def _is_same(stored: DesiredState, wanted: DesiredState) -> bool:
    # Reasons are words about the same state: a new wording is no reason to flip or to wake anyone.
    ignored = {"generation", "reasons", "lease_s"}
    return stored.model_dump(exclude=ignored) == wanted.model_dump(exclude=ignored)


def _is_ramped(worker: Worker, resolution: Resolution, catalogue: Sequence[Flag]) -> bool:
    fallback = {flag.name: flag.fallback_on(worker.hardware) for flag in catalogue}
    return any(
        choice.layer is Layer.PROMOTED
        and choice.variant != fallback[choice.flag]
        and worker.desired_flags.get(choice.flag) != choice.variant
        for choice in resolution.choices
    )


def _ramp_left(conn: Connection, seen: Situation, *, now: datetime) -> int:
    limits = [
        policies.of_digest(conn, canary.policy_digest).limits.max_flips_per_minute
        for canary in canary_store.promoted(conn, fleet=seen.fleet.name)
        if canary.flag and seen.fleet.promoted.get(canary.flag) == canary.variant
    ]
    limit = min(limits, default=DEFAULT_FLIPS_PER_MINUTE)
    num_made = history.num_flips(
        conn, fleet=seen.fleet.name, layer=Layer.PROMOTED, since=now - _RAMP_WINDOW
    )
    return limit - num_made
