"""The ledger of qualifications: what canaries and people said of variants. Nothing is erased."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, select, true, update

from controlplane.domain.canary import Phase
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import NotFoundError
from controlplane.domain.ledger import FAILURES, Basis, Record, Standing
from controlplane.store import dialect
from controlplane.store import fleets as fleet_store
from controlplane.store.tables import (
    canaries,
    canary_workers,
    decisions,
    fleets,
    qualifications,
    transitions,
    workers,
)

_SUBJECT = ("flag", "variant", "hardware", "stack")
_BASIS = ("num_rated", "num_slow", "num_sessions", "num_failed")
_FAILURES = tuple(event.value for event in FAILURES)
_SENT_BACK = (Phase.ROLLING_BACK.value, Phase.CONTAINED.value, Phase.ROLLED_BACK.value)
_KEPT = ("actor", "reason", "created_at", "revoked_at", "revoked_by", "revoked_reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What is to be recorded."""

    subject: Qualification
    standing: Standing
    actor: str
    reason: str
    fleet: str | None = None  # name, of an attestation; None: it holds in every fleet
    canary_id: str | None = None  # None: a person attests it
    decision_id: str | None = None
    basis: Basis | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revocation:
    """Who takes back what was said, and why."""

    actor: str
    reason: str
    now: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What a canary was sent back for."""

    reason: str
    decision_id: str | None


def lock(conn: Connection) -> None:
    """Let nobody else write the ledger until this transaction ends: look only after this."""
    # The audit trail's own lock: every write here is followed or preceded by a row there, and two
    # locks would be taken in two orders.
    dialect.serialise(conn, "audit")


def append(conn: Connection, entry: Entry, *, now: datetime) -> int:
    """Record `entry`. Returns its number, which is above every number before it."""
    lock(conn)
    row = {
        **asdict(entry.subject),
        **(asdict(entry.basis) if entry.basis else {}),
        "standing": entry.standing.value,
        "fleet_id": fleet_store.id_of(conn, entry.fleet) if entry.fleet else None,
        "canary_id": entry.canary_id,
        "decision_id": entry.decision_id,
        "actor": entry.actor,
        "reason": entry.reason,
        "created_at": now,
    }
    inserted = conn.execute(qualifications.insert().values(row))
    assert inserted.inserted_primary_key is not None, "the database numbers every record"
    return int(inserted.inserted_primary_key[0])


def revoke(conn: Connection, subject: Qualification, *, fleet: str | None, by: Revocation) -> int:
    """Take back what qualifies `subject`; a disqualification stays.

    Args:
        conn: a connection.
        subject: that is proven no longer.
        fleet: only what was attested for this fleet; None: what holds in any.
        by: who does, and why.

    Returns: how many records were revoked.
    """
    lock(conn)
    standing = (
        _of(subject)
        & qualifications.c.revoked_at.is_(None)
        & (qualifications.c.standing == Standing.QUALIFIED.value)
    )
    if fleet is not None:
        standing &= qualifications.c.fleet_id == fleet_store.id_of(conn, fleet)
    changed = {"revoked_at": by.now, "revoked_by": by.actor, "revoked_reason": by.reason}
    return conn.execute(update(qualifications).where(standing).values(changed)).rowcount


def standings(conn: Connection, *, fleet: str) -> Mapping[Qualification, Standing]:
    """How each variant on record stands in `fleet`; one that is absent is neither."""
    speaking = (
        select(func.max(qualifications.c.sequence))
        .outerjoin(fleets)
        .where(
            qualifications.c.revoked_at.is_(None),
            fleets.c.name.is_(None) | (fleets.c.name == fleet),
        )
        .group_by(*(qualifications.c[name] for name in _SUBJECT))
    )
    columns = (qualifications.c[name] for name in (*_SUBJECT, "standing"))
    rows = conn.execute(select(*columns).where(qualifications.c.sequence.in_(speaking)))
    return {_subject(row): Standing(row.standing) for row in rows}


def of_subject(conn: Connection, subject: Qualification) -> tuple[Record, ...]:
    """Every record of `subject`, newest first, the revoked ones too."""
    newest_first = qualifications.c.sequence.desc()
    rows = conn.execute(_selected().where(_of(subject)).order_by(newest_first))
    return tuple(_record(row) for row in rows)


def get(conn: Connection, number: int) -> Record:
    """The record of that number. Raises: NotFoundError."""
    row = conn.execute(_selected().where(qualifications.c.sequence == number)).first()
    if row is None:
        raise NotFoundError("qualification", str(number))
    return _record(row)


def list_page(
    conn: Connection, *, fleet: str | None, after: int | None, limit: int
) -> tuple[Record, ...]:
    """Up to `limit` records that are not revoked or superseded, newest first.

    Args:
        conn: a connection.
        fleet: only what holds in this fleet, for the hardware and stacks of its workers; None: all.
        after: number of the last of the page before; None: the first page.
        limit: at most so many.

    Raises:
        NotFoundError: no fleet of that name.
    """
    newer = qualifications.alias("newer")
    same = qualifications.c.revoked_at.is_(None) & newer.c.revoked_at.is_(None)
    for name in _SUBJECT:
        same &= newer.c[name] == qualifications.c[name]
    is_wider = newer.c.fleet_id.is_(None) | (newer.c.fleet_id == qualifications.c.fleet_id)
    superseded = select(newer.c.sequence).where(
        same, is_wider, newer.c.sequence > qualifications.c.sequence
    )
    selected = _selected().where(qualifications.c.revoked_at.is_(None), ~superseded.exists())
    if fleet is not None:
        selected = selected.where(_holds_in(fleet_store.id_of(conn, fleet)))
    if after is not None:
        selected = selected.where(qualifications.c.sequence < after)
    rows = conn.execute(selected.order_by(qualifications.c.sequence.desc()).limit(limit))
    return tuple(_record(row) for row in rows)


def failure_of(conn: Connection, *, canary_id: str) -> Failure | None:
    """Why the canary was sent back; None if it was not, or not for what its variant did."""
    failed = (transitions.c.canary_id == canary_id) & transitions.c.event.in_(_FAILURES)
    columns = (transitions.c.reason, transitions.c.decision_id)
    row = conn.execute(select(*columns).where(failed)).first()
    return Failure(**row._asdict()) if row else None


def tainted_incarnations(conn: Connection, *, fleet: str, flag: str | None) -> frozenset[str]:
    """Processes of `fleet` that have run a variant of `flag` that failed, in any of their lives.

    `flag` None: of any.

    A failed variant may leave something behind in the process that ran it, so such a process is no
    control until it is replaced. Counted from the moment its canary is sent back; one that left an
    aborted canary counts once the variant is disqualified on that hardware and stack. Those exposed
    to a canary that still runs are not among them, whatever an earlier attempt showed.
    """
    has_failed = (
        select(transitions.c.sequence)
        .where(transitions.c.canary_id == canaries.c.id, transitions.c.event.in_(_FAILURES))
        .exists()
    )
    subject = (canaries.c[name] for name in _SUBJECT)
    # A stack is tried with the variants of every flag at once.
    is_of_flag = (canaries.c.flag == flag) | canaries.c.flag.is_(None) if flag else true()
    rows = conn.execute(
        select(canary_workers.c.incarnation, has_failed.label("has_failed"), *subject)
        .join_from(canary_workers, canaries)
        .join(fleets)
        .where(fleets.c.name == fleet, is_of_flag, canaries.c.phase.in_(_SENT_BACK))
    )
    known = standings(conn, fleet=fleet)
    return frozenset(
        row.incarnation
        for row in rows
        if row.has_failed or known.get(_subject(row)) is Standing.DISQUALIFIED
    )


def _selected() -> Select[Any]:
    kept = (qualifications.c[name] for name in ("standing", *_SUBJECT, *_BASIS, *_KEPT))
    return select(
        *kept,
        qualifications.c.sequence.label("number"),
        fleets.c.name.label("fleet"),
        canaries.c.name.label("canary"),
        qualifications.c.decision_id.label("decision"),
        decisions.c.digest.label("evidence_digest"),
    ).select_from(
        qualifications.outerjoin(fleets, qualifications.c.fleet_id == fleets.c.id)
        .outerjoin(canaries, qualifications.c.canary_id == canaries.c.id)
        .outerjoin(decisions, qualifications.c.decision_id == decisions.c.id)
    )


def _holds_in(fleet_id: str) -> ColumnElement[bool]:
    there = select(workers.c.id).where(
        workers.c.fleet_id == fleet_id,
        workers.c.hardware == qualifications.c.hardware,
        workers.c.stack == qualifications.c.stack,
    )
    is_known = qualifications.c.fleet_id.is_(None) | (qualifications.c.fleet_id == fleet_id)
    return is_known & there.exists()


def _of(subject: Qualification) -> ColumnElement[bool]:
    return and_(*(qualifications.c[name] == value for name, value in asdict(subject).items()))


def _subject(row: Row[Any]) -> Qualification:
    return Qualification(**{name: row._mapping[name] for name in _SUBJECT})  # noqa: SLF001 - a public name of SQLAlchemy's


def _record(row: Row[Any]) -> Record:
    values = row._asdict()
    counts = {name: values.pop(name) for name in _BASIS}
    for name in _SUBJECT:
        del values[name]
    return Record(
        **{
            **values,
            "subject": _subject(row),
            "standing": Standing(values["standing"]),
            "basis": Basis(**counts) if counts["num_rated"] is not None else None,
        }
    )
