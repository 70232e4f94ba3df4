"""Builders for what is stored and sent: each call says only what matters to its case.

Values of the domain are built by `tests/domain/build.py`; here are rows that stand on one another,
and the messages and records of the contract.
"""

from dataclasses import replace
from datetime import datetime
from typing import Any

from controlplane.contract import vocabulary
from controlplane.contract.messages import (
    BreakerTrip,
    DesiredState,
    EffectiveReport,
    RankReport,
    Registration,
)
from controlplane.contract.records import (
    ProcessWindow,
    Record,
    Segment,
    SessionEnded,
    SessionStarted,
    SessionWindow,
)
from controlplane.contract.vocabulary import EventName, Outcome, Reason
from controlplane.domain.canary import Canary, Event, Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.fleet import Fleet, Worker
from controlplane.domain.ledger import Standing
from controlplane.services.ingest import Received, Writer
from controlplane.store import canaries as canary_store
from controlplane.store import fleets as fleet_store
from controlplane.store import history
from controlplane.store import policies as policy_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.qualifications import Entry
from controlplane.store.transaction import Connection
from tests.clock import START
from tests.domain import build as domain

FLEET = "main"
WORKER = "worker-1"
HARDWARE = domain.HARDWARE
STACK_PARTS = {"torch": "2.13", "driver": "580.12"}
STACK = vocabulary.stack_digest(STACK_PARTS)
FLAG = domain.FLAG
PLAIN = domain.PLAIN
FUSED = domain.FUSED
SUBJECT = Qualification(flag=FLAG, variant=FUSED, hardware=HARDWARE, stack=STACK)
_EVENTS: dict[type[Record], EventName] = {
    SessionStarted: EventName.SESSION_STARTED,
    SessionWindow: EventName.SESSION_WINDOW,
    SessionEnded: EventName.SESSION_ENDED,
    ProcessWindow: EventName.PROCESS_WINDOW,
}


def put_fleet(conn: Connection, *, name: str = FLEET, **changes: Any) -> Fleet:
    """A stored fleet that enforces."""
    fleet = domain.fleet(id=f"fleet-{name}", name=name, **changes)
    fleet_store.insert(conn, fleet)
    return fleet


def put_worker(
    conn: Connection, name: str = WORKER, *, now: datetime = START, **changes: Any
) -> Worker:
    """A stored worker of `put_fleet`'s fleet that has just registered."""
    return worker_store.register(
        conn,
        registration=registration(worker=name, **changes),
        worker_id=f"id-{name}",
        now=now,
    )


def put_canary(conn: Connection, **changes: Any) -> Canary:
    """A stored canary of `put_fleet`'s fleet, on the workers of `put_worker`, with its policy."""
    policy = domain.policy()
    policy_store.put(conn, policy, now=START)
    known = {"fleet": FLEET, "stack": STACK, "policy_digest": policy.digest, "created_at": START}
    times = {"phase_since": START, "step_since": START}
    canary = domain.canary(**{**known, **times, **changes})
    canary_store.insert(conn, canary)
    return canary


def put_record(conn: Connection, **changes: Any) -> int:
    """A record that the fused variant is qualified on `put_worker`'s workers, in every fleet."""
    base = Entry(subject=SUBJECT, standing=Standing.QUALIFIED, actor="ada", reason="a test")
    return qualification_store.append(conn, replace(base, **changes), now=START)


def registration(**changes: Any) -> Registration:
    """A worker's first life, running the plain variant."""
    worker = changes.get("worker", WORKER)
    base: dict[str, Any] = {
        "fleet": FLEET,
        "worker": WORKER,
        "incarnation": f"incarnation-{worker}",
        "hardware": HARDWARE,
        "stack": STACK_PARTS,
        "generation": 0,
        "flags": {FLAG: PLAIN},
        "capabilities": {FLAG: [PLAIN, FUSED]},
    }
    return Registration.model_validate({**base, **changes})


def effective(**changes: Any) -> EffectiveReport:
    """Two ranks that run the plain variant."""
    flags = changes.get("flags", {FLAG: PLAIN})
    generation = changes.get("generation", 1)
    base: dict[str, Any] = {
        "incarnation": f"incarnation-{WORKER}",
        "generation": generation,
        "flags": flags,
        "ranks": [rank(number, flags=flags, generation=generation) for number in (0, 1)],
    }
    return EffectiveReport.model_validate({**base, **changes})


def rank(number: int, *, flags: dict[str, str], generation: int = 1, **changes: Any) -> RankReport:
    base: dict[str, Any] = {
        "rank": number,
        "generation": generation,
        "digest": vocabulary.flags_digest(flags),
        "step": 100,
    }
    return RankReport.model_validate({**base, **changes})


def breaker_trip(trip: str = "trip-1", **changes: Any) -> BreakerTrip:
    """Out of memory under the fused variant."""
    base: dict[str, Any] = {
        "incarnation": f"incarnation-{WORKER}",
        "trip": trip,
        "reason": Reason.OUT_OF_MEMORY,
        "flags": {FLAG: FUSED},
        "generation": 1,
    }
    return BreakerTrip.model_validate({**base, **changes})


def desired(generation: int = 1, **changes: Any) -> DesiredState:
    base: dict[str, Any] = {
        "fleet": FLEET,
        "worker": WORKER,
        "generation": generation,
        "flags": {FLAG: PLAIN},
    }
    return DesiredState.model_validate({**base, **changes})


def started(session: str = "session-1", *, seq: int = 1, **changes: Any) -> SessionStarted:
    return SessionStarted.model_validate({**_session(session, seq), **changes})


def window(session: str = "session-1", *, seq: int = 2, **changes: Any) -> SessionWindow:
    """Five seconds at 24.8 fps."""
    counters = {"num_frames": 128, "num_first_chunk_frames": 4, "streamed_s": 5.0}
    return SessionWindow.model_validate({**_session(session, seq), **counters, **changes})


def ended(session: str = "session-1", *, seq: int = 3, **changes: Any) -> SessionEnded:
    """Completed after ten seconds at 24.8 fps."""
    counters = {"num_frames": 252, "num_first_chunk_frames": 4, "streamed_s": 10.0}
    end = {"outcome": Outcome.COMPLETED}
    return SessionEnded.model_validate({**_session(session, seq), **counters, **end, **changes})


def process_window(*, seq: int = 1, **changes: Any) -> ProcessWindow:
    base: dict[str, Any] = {"seq": seq, "resident_bytes": 1000, "num_sessions_started": 1}
    return ProcessWindow.model_validate({**base, **changes})


def segment(variant: str = PLAIN, *, num_frames: int = 100) -> Segment:
    return Segment(flags={FLAG: variant}, num_frames=num_frames, streamed_s=num_frames / 25)


def received(record: Record, **changes: Any) -> Received:
    """`record` as it comes from `put_worker`'s worker."""
    base: dict[str, Any] = {
        "event": _EVENTS[type(record)],
        "incarnation": f"incarnation-{WORKER}",
        "hardware": HARDWARE,
        "stack": STACK,
        "record": record,
    }
    return Received(**{**base, **changes})


def writer(worker: str = WORKER) -> Writer:
    return Writer(fleet=FLEET, worker=worker)


def _session(session: str, seq: int) -> dict[str, Any]:
    return {"session": session, "seq": seq, "flags": {FLAG: PLAIN}, "first_forward_length": 300}


def put_way_back(
    conn: Connection, canary: Canary, event: Event, *, decision_id: str | None = None
) -> None:
    """The transition by which `event` sent the canary back."""
    history.append_transition(
        conn,
        canary_id=canary.id,
        event=event,
        phase_from=Phase.PROGRESSING,
        phase_to=Phase.ROLLING_BACK,
        step=0,
        reason="a test",
        actor="steadyframe",
        decision_id=decision_id,
        now=START,
    )
