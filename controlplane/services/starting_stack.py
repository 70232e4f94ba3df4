"""Whether a canary of a new stack may begin: what it is compared with, and what both stacks run."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.domain import flag as flags
from controlplane.domain import fleet as fleets
from controlplane.domain import ledger
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError, InvalidValueError, one_of
from controlplane.domain.fleet import LEAST_CONTROLS, Worker
from controlplane.domain.ledger import Standing
from controlplane.services import starting
from controlplane.services.starting import Start
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection


def checked(
    conn: Connection, *, fleet: str, stack: str, hardware: str | None, now: datetime
) -> Start:
    """What would begin.

    Raises:
        NotFoundError: no such fleet.
        InvalidValueError: a stack or hardware that is not there; says which are.
        ConflictError: the fleet is not in a state to run it; says what to do.
    """
    its_fleet = fleet_store.get(conn, fleet)
    starting.check_state(its_fleet)
    workers = worker_store.in_fleet(conn, fleet=fleet)
    on_it = _on_stack(workers, stack)
    its_hardware = starting.hardware_of(on_it, hardware, fleet=fleet)
    there = [worker for worker in workers if worker.hardware == its_hardware]
    old_stack = _old_stack(there, stack, hardware=its_hardware)
    catalogue = flag_store.catalogue(conn)
    variants = {
        flag.name: starting.baseline_of(
            conn, its_fleet, flag, hardware=its_hardware, stack=old_stack
        )
        for flag in catalogue
    }
    fallback = flags.fallback_flags(catalogue, its_hardware)
    unproven = [
        Qualification(flag=flag, variant=variant, hardware=its_hardware, stack=stack)
        for flag, variant in sorted(variants.items())
        if fallback[flag] != variant
    ]
    _check_new(conn, unproven, fleet=fleet, old_stack=old_stack, stack=stack)
    able = _able(there, variants, stack=stack)
    _check_controls(there, variants, old_stack=old_stack, now=now)
    records = [qualification_store.of_subject(conn, subject) for subject in unproven]
    barring = [starting.disqualifying(of_one, fleet=fleet) for of_one in records]
    return Start(
        fleet=its_fleet,
        flag=None,
        variant=None,
        baseline=None,
        hardware=its_hardware,
        stack=stack,
        old_stack=old_stack,
        variants=variants,
        eligible=able,
        ahead=_ahead(conn, fleet=fleet, hardware=its_hardware, stack=stack),
        attempt=max(ledger.attempt(of_one) for of_one in records),
        barred_by=next((record for record in barring if record is not None), None),
    )


def _on_stack(workers: Sequence[Worker], stack: str) -> list[Worker]:
    on_it = [worker for worker in workers if worker.stack == stack]
    if not on_it:
        there = sorted({worker.stack for worker in workers})
        allowed = f"one that a worker of the fleet has: {one_of(there) if there else 'none yet'}"
        raise InvalidValueError("stack", stack, allowed=allowed)
    return on_it


def _old_stack(there: Sequence[Worker], stack: str, *, hardware: str) -> str:
    """The other stack with most workers on that hardware."""
    counted = Counter(worker.stack for worker in there if worker.stack != stack)
    if not counted:
        raise ConflictError(
            f"every worker on {hardware} has stack {stack}: there is no other to compare it with"
        )
    return min(counted.items(), key=lambda one: (-one[1], one[0]))[0]


def _check_new(
    conn: Connection, unproven: Sequence[Qualification], *, fleet: str, old_stack: str, stack: str
) -> None:
    if not unproven:
        raise ConflictError(
            f"nothing to prove: stack {old_stack} runs the fallback of every flag, as {stack} does"
            " already"
        )
    known = qualification_store.standings(conn, fleet=fleet)
    if all(known.get(subject) is Standing.QUALIFIED for subject in unproven):
        names = ", ".join(f"{subject.flag}={subject.variant}" for subject in unproven)
        raise ConflictError(f"nothing to prove: {names} is qualified on stack {stack} already")


def _able(there: Sequence[Worker], variants: Mapping[str, str], *, stack: str) -> tuple[str, ...]:
    """Names of workers that the new stack can be tried on, out of service or not."""
    able = tuple(
        worker.name
        for worker in there
        if worker.stack == stack
        and all(variant in worker.capabilities.get(flag, ()) for flag, variant in variants.items())
    )
    if not able:
        runs = ", ".join(f"{flag}={variant}" for flag, variant in sorted(variants.items()))
        raise ConflictError(f"no worker of stack {stack} knows all of what is to be run: {runs}")
    return able


def _check_controls(
    there: Sequence[Worker], variants: Mapping[str, str], *, old_stack: str, now: datetime
) -> None:
    old = [worker for worker in there if worker.stack == old_stack]
    num_controls = sum(
        fleets.runs(worker, variants) and fleets.is_eligible(worker, variants=variants, now=now)
        for worker in old
    )
    if num_controls < LEAST_CONTROLS:
        raise ConflictError(
            f"{num_controls} of {len(old)} workers on the old stack {old_stack} can be compared"
            f" with: without {LEAST_CONTROLS} that are reachable, run what is promoted and are not"
            " pinned, tripped or cordoned, there is no control"
        )


def _ahead(conn: Connection, *, fleet: str, hardware: str, stack: str) -> tuple[str, ...]:
    live = [
        one for one in canary_store.live(conn) if (one.fleet, one.hardware) == (fleet, hardware)
    ]
    for one in live:
        if one.old_stack is not None and one.stack == stack:
            raise ConflictError(f"{one.name} tries stack {stack} there already: {one.phase}")
    return tuple(one.name for one in live)
