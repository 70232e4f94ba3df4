"""What happened, append only: transitions, decisions, blocks of evidence, flips."""

import json
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, func, select

from controlplane.domain.blocks import ArmCounts, Block, Kind
from controlplane.domain.canary import Event, Phase
from controlplane.domain.eprocess import Table
from controlplane.domain.errors import NotFoundError
from controlplane.domain.verdict import Verdict
from controlplane.store.columns import to_json
from controlplane.store.tables import (
    decisions,
    evidence_blocks,
    fleets,
    flips,
    transitions,
    workers,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A canary went from one phase to another, or to the next step."""

    sequence: int
    canary_id: str
    event: Event
    phase_from: Phase
    phase_to: Phase
    step: int
    reason: str
    actor: str
    decision_id: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A judgement with all that went into it."""

    id: str
    canary_id: str
    verdict: Verdict
    gates: Any
    inputs: Any
    digest: str
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """A worker was told to run other flags."""

    sequence: int
    worker_id: str
    generation: int
    flags_from: Mapping[str, str]
    flags_to: Mapping[str, str]
    layer: str
    reason: str
    at: datetime


def append_transition(  # noqa: PLR0913 - the columns of the row
    conn: Connection,
    *,
    canary_id: str,
    event: Event,
    phase_from: Phase,
    phase_to: Phase,
    step: int,
    reason: str,
    actor: str,
    decision_id: str | None,
    now: datetime,
) -> None:
    """Record what happened to a canary."""
    conn.execute(
        transitions.insert().values(
            canary_id=canary_id,
            event=event.value,
            phase_from=phase_from.value,
            phase_to=phase_to.value,
            step=step,
            reason=reason,
            actor=actor,
            decision_id=decision_id,
            at=now,
        )
    )


def transitions_of(
    conn: Connection, *, canary_id: str, after: int | None = None, limit: int = 100
) -> tuple[Transition, ...]:
    """Transitions of the canary, newest first, below the sequence `after`."""
    selected = select(transitions).where(transitions.c.canary_id == canary_id)
    if after is not None:
        selected = selected.where(transitions.c.sequence < after)
    rows = conn.execute(selected.order_by(transitions.c.sequence.desc()).limit(limit))
    return tuple(_transition(row) for row in rows)


def append_decision(  # noqa: PLR0913 - the columns of the row
    conn: Connection,
    *,
    id: str,  # noqa: A002 - the column's name
    canary_id: str,
    verdict: Verdict,
    gates: object,
    inputs: object,
    digest: str,
    now: datetime,
) -> None:
    """Record a judgement; `digest` is of the canonical form of `inputs`, kept as it is."""
    conn.execute(
        decisions.insert().values(
            id=id,
            canary_id=canary_id,
            verdict=Verdict(verdict).value,
            gates=to_json(gates),
            inputs=to_json(inputs),
            digest=digest,
            at=now,
        )
    )


def decisions_of(
    conn: Connection, *, canary_id: str, after: str | None = None, limit: int = 100
) -> tuple[Decision, ...]:
    """Decisions on the canary, newest first, below the id `after`."""
    selected = select(decisions).where(decisions.c.canary_id == canary_id)
    if after is not None:
        selected = selected.where(decisions.c.id < after)
    rows = conn.execute(selected.order_by(decisions.c.id.desc()).limit(limit))
    return tuple(_decision(row) for row in rows)


def decision(conn: Connection, decision_id: str) -> Decision:
    """The decision of that id.

    Raises:
        NotFoundError: there is none.
        ValueError: what is stored is no JSON.
    """
    row = conn.execute(select(decisions).where(decisions.c.id == decision_id)).first()
    if row is None:
        raise NotFoundError("decision", decision_id)
    return _decision(row)


def canary_of_decision(conn: Connection, decision_id: str) -> str:
    """Id of the canary that was decided on. Raises: NotFoundError: there is no such decision."""
    selected = select(decisions.c.canary_id).where(decisions.c.id == decision_id)
    found: str | None = conn.scalars(selected).first()
    if found is None:
        raise NotFoundError("decision", decision_id)
    return found


def append_block(conn: Connection, *, canary_id: str, block: Block) -> None:
    """Record a closed block; it is never revised."""
    conn.execute(
        evidence_blocks.insert().values(
            canary_id=canary_id,
            kind=block.kind.value,
            position=block.index,
            opened_at=block.opened_at,
            closed_at=block.closed_at,
            arms={arm: asdict(counts) for arm, counts in block.arms.items()},
            tables={name: [astuple(one) for one in of] for name, of in block.tables.items()},
            sessions=list(block.sessions),
            units=list(block.units),
        )
    )


def blocks_of(conn: Connection, *, canary_id: str) -> tuple[Block, ...]:
    """The blocks of the canary, in the order they were written, which is that of judging them."""
    of_canary = evidence_blocks.c.canary_id == canary_id
    rows = conn.execute(
        select(evidence_blocks).where(of_canary).order_by(evidence_blocks.c.sequence)
    )
    return tuple(_block(row) for row in rows)


def append_flip(  # noqa: PLR0913 - the columns of the row
    conn: Connection,
    *,
    worker_id: str,
    generation: int,
    flags_from: Mapping[str, str],
    flags_to: Mapping[str, str],
    layer: str,
    reason: str,
    now: datetime,
) -> None:
    """Record that a worker is told to run other flags, and which layer wanted it."""
    conn.execute(
        flips.insert().values(
            worker_id=worker_id,
            generation=generation,
            flags_from=dict(flags_from),
            flags_to=dict(flags_to),
            layer=str(layer),
            reason=reason,
            at=now,
        )
    )


def flips_of(
    conn: Connection, *, worker_id: str, after: int | None = None, limit: int = 100
) -> tuple[Flip, ...]:
    """Flips of the worker, newest first, below the sequence `after`."""
    selected = select(flips).where(flips.c.worker_id == worker_id)
    if after is not None:
        selected = selected.where(flips.c.sequence < after)
    rows = conn.execute(selected.order_by(flips.c.sequence.desc()).limit(limit))
    return tuple(Flip(**row._asdict()) for row in rows)


def num_flips(conn: Connection, *, fleet: str, layer: str, since: datetime) -> int:
    """How many flips `layer` has made in the fleet since then."""
    counted = (
        select(func.count())
        .select_from(flips)
        .join(workers)
        .join(fleets)
        .where(fleets.c.name == fleet, flips.c.layer == str(layer), flips.c.at >= since)
    )
    return conn.scalars(counted).one()


def _transition(row: Row[Any]) -> Transition:
    known = {
        "event": Event(row.event),
        "phase_from": Phase(row.phase_from),
        "phase_to": Phase(row.phase_to),
    }
    return Transition(**{**row._asdict(), **known})


def _decision(row: Row[Any]) -> Decision:
    known = {
        "verdict": Verdict(row.verdict),
        "gates": json.loads(row.gates),
        "inputs": json.loads(row.inputs),
    }
    return Decision(**{**row._asdict(), **known})


def _block(row: Row[Any]) -> Block:
    return Block(
        kind=Kind(row.kind),
        index=row.position,
        opened_at=row.opened_at,
        closed_at=row.closed_at,
        arms={arm: ArmCounts(**counts) for arm, counts in row.arms.items()},
        tables={name: tuple(Table(*one) for one in of) for name, of in row.tables.items()},
        sessions=tuple(row.sessions),
        units=tuple(row.units),
    )
