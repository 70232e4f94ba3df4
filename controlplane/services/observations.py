"""Reads everything a plan may look at about one canary, in one transaction."""

from datetime import timedelta

from controlplane.domain import ledger
from controlplane.domain.canary import TERMINAL, Canary, Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.ledger import Standing
from controlplane.domain.observation import Observation, Request, RequestKind
from controlplane.services import policies
from controlplane.store import canaries as canary_store
from controlplane.store import evidence as evidence_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store import requests as request_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection


def observe(conn: Connection, canary: Canary, *, tick: timedelta) -> Observation:
    """What is known about `canary` now, its own row read anew."""
    canary = canary_store.get(conn, name_or_id=canary.id)
    workers = worker_store.in_fleet(conn, fleet=canary.fleet)
    return Observation(
        canary=canary,
        policy=policies.of_digest(conn, canary.policy_digest),
        catalogue=flag_store.catalogue(conn),
        fleet=fleet_store.get(conn, canary.fleet),
        workers=tuple(w for w in workers if w.hardware == canary.hardware),
        exposures=canary_store.exposed(conn, canary_id=canary.id),
        # What its stratum did before it began is neither its merit nor its fault.
        evidence=evidence_store.of_canary(conn, canary=canary, since=canary.created_at),
        requests=tuple(
            Request(id=r.id, kind=RequestKind(r.kind), actor=r.actor, reason=r.reason)
            for r in request_store.pending(conn, canary_id=canary.id)
        ),
        is_next=_is_next(conn, canary),
        tick=tick,
        blocks=history.blocks_of(conn, canary_id=canary.id),
        qualified_slow_rate=_qualified_slow_rate(conn, canary),
    )


def _qualified_slow_rate(conn: Connection, canary: Canary) -> float | None:
    """What the newest record that counts says of the baseline there; None: it says no rate.

    Of a stack the strictest that is on record of what the old one runs.
    """
    rates = []
    for flag, variant in canary.compared.items():
        subject = Qualification(
            flag=flag, variant=variant, hardware=canary.hardware, stack=canary.control_stack
        )
        record = ledger.current(qualification_store.of_subject(conn, subject), fleet=canary.fleet)
        if record is not None and record.standing is Standing.QUALIFIED and record.basis:
            rates.append(record.basis.slow_rate)
    return min((rate for rate in rates if rate is not None), default=None)


def _is_next(conn: Connection, canary: Canary) -> bool:
    """Whether no other canary of the fleet and hardware runs, or waits in front of it."""
    return not any(
        other.id != canary.id
        and other.fleet == canary.fleet
        and other.hardware == canary.hardware
        and other.phase not in TERMINAL
        and (other.phase is not Phase.PENDING or other.created_at < canary.created_at)
        for other in canary_store.live(conn)
    )
