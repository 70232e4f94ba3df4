"""The ledger of qualifications: written when a canary ends, read by everyone.

A canary speaks for every fleet. What failed in one is made good by nothing but another, which an
admin starts (`canaries.start`); what people say of a fleet is `attestation`'s.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from controlplane.domain import ledger
from controlplane.domain.canary import Canary
from controlplane.domain.desired import Qualification
from controlplane.domain.ledger import Record, Standing
from controlplane.store import audit as audit_store
from controlplane.store import history
from controlplane.store import qualifications as qualification_store
from controlplane.store.qualifications import Entry, Revocation
from controlplane.store.transaction import Connection

_ACTOR = "steadyframe"


def qualify(conn: Connection, canary: Canary, *, actor: str, now: datetime) -> bool:
    """Record that `canary`, which is promoted, has proven its variant, or each that its stack ran.

    Returns: False where another canary has disqualified it since this one began: what is proven is
        recorded and revoked at once, and the variant must not be promoted.
    """
    qualification_store.lock(conn)
    proven = [
        _qualify(conn, canary, subject, actor=actor, now=now)
        for subject in _subjects(canary, canary.tested)
    ]
    return all(proven)


def _qualify(
    conn: Connection, canary: Canary, subject: Qualification, *, actor: str, now: datetime
) -> bool:
    before = qualification_store.of_subject(conn, subject)
    decided = history.decisions_of(conn, canary_id=canary.id, limit=1)
    entry = Entry(
        subject=subject,
        standing=Standing.QUALIFIED,
        actor=actor,
        reason=canary.reason,
        canary_id=canary.id,
        decision_id=decided[0].id if decided else None,
        basis=ledger.basis(history.blocks_of(conn, canary_id=canary.id)),
    )
    qualification_store.append(conn, entry, now=now)
    standing = ledger.current(before, fleet=canary.fleet)
    is_overtaken = ledger.attempt(before) > canary.attempt
    if standing is None or standing.standing is Standing.QUALIFIED or not is_overtaken:
        _audit(conn, canary, subject, "qualification.recorded", reason=canary.reason, now=now)
        return True
    reason = f"{canary.name} began before {standing.canary} failed there: an admin may run it again"
    _revoke_all(conn, subject, reason=reason, now=now)
    _audit(conn, canary, subject, "qualification.refused", reason=reason, now=now)
    return False


def disqualify(
    conn: Connection, canary: Canary, *, variants: Mapping[str, str] | None = None, now: datetime
) -> bool:
    """Record that the variant of `canary`, which is rolled back, failed there, if it did.

    An abort, a lost control or a lapsed lease says nothing of it.

    Args:
        conn: a connection.
        canary: as it stands.
        variants: of a stack canary, flag -> variant of those that are no fallback: which of them
            failed is not known, so none may run there before another attempt has passed.
        now: of the record.

    Returns: whether it did.
    """
    failure = qualification_store.failure_of(conn, canary_id=canary.id)
    if failure is None:
        return False
    for subject in _subjects(canary, canary.tested if variants is None else variants):
        _revoke_all(conn, subject, reason=f"disqualified by {canary.name}", now=now)
        entry = Entry(
            subject=subject,
            standing=Standing.DISQUALIFIED,
            actor=_ACTOR,
            reason=failure.reason,
            canary_id=canary.id,
            decision_id=failure.decision_id,
            basis=ledger.basis(history.blocks_of(conn, canary_id=canary.id)),
        )
        qualification_store.append(conn, entry, now=now)
        said = failure.reason
        _audit(conn, canary, subject, "qualification.disqualified", reason=said, now=now)
    return True


def list_page(
    conn: Connection, *, fleet: str | None, after: int | None, limit: int
) -> tuple[Mapping[str, object], ...]:
    """Up to `limit` records that count now, newest first. Raises: NotFoundError: no such fleet."""
    found = qualification_store.list_page(conn, fleet=fleet, after=after, limit=limit)
    return tuple(shown(record) for record in found)


def show(conn: Connection, number: int, *, fleet: str | None) -> Mapping[str, object]:
    """One record, and every record of the same variant, hardware and stack, newest first.

    Args:
        conn: a connection.
        number: of the record.
        fleet: leave out what was attested for other fleets; None: show all.

    Raises:
        NotFoundError: no record of that number.
    """
    record = qualification_store.get(conn, number)
    records = qualification_store.of_subject(conn, record.subject)
    seen = [one for one in records if fleet is None or one.fleet in (None, fleet)]
    return {
        **shown(record),
        "is_current": _is_current(record, records),
        "attempt": ledger.attempt(records),
        "history": [{**shown(one), "is_current": _is_current(one, records)} for one in seen],
    }


def fleet_of(conn: Connection, number: int) -> str | None:
    """The fleet that a record holds in; None: in every fleet. Raises: NotFoundError."""
    return qualification_store.get(conn, number).fleet


def shown(record: Record) -> Mapping[str, object]:
    """What answers say of a record."""
    fields = {name: getattr(record, name) for name in Record.__dataclass_fields__}
    subject, basis = fields.pop("subject"), fields.pop("basis")
    named = {name: getattr(subject, name) for name in Qualification.__dataclass_fields__}
    return {
        **fields,
        **named,
        "origin": record.origin,
        "basis": basis,
        "slow_rate": basis.slow_rate if basis else None,
        "failure_rate": basis.failure_rate if basis else None,
    }


def _subjects(canary: Canary, variants: Mapping[str, str]) -> tuple[Qualification, ...]:
    return tuple(
        Qualification(flag=flag, variant=variant, hardware=canary.hardware, stack=canary.stack)
        for flag, variant in sorted(variants.items())
    )


def _revoke_all(conn: Connection, subject: Qualification, *, reason: str, now: datetime) -> None:
    by = Revocation(actor=_ACTOR, reason=reason, now=now)
    qualification_store.revoke(conn, subject, fleet=None, by=by)


def _is_current(record: Record, records: Sequence[Record]) -> bool:
    # For a record of every fleet: whether it counts where nobody attested anything.
    newest = ledger.current(records, fleet=record.fleet or "")
    return newest is not None and newest.number == record.number


def _audit(
    conn: Connection,
    canary: Canary,
    subject: Qualification,
    action: str,
    *,
    reason: str,
    now: datetime,
) -> None:
    audit_store.append(
        conn,
        actor=_ACTOR,
        action=action,
        target=f"{subject.flag}={subject.variant}",
        reason=reason,
        detail={"canary": canary.name, "hardware": canary.hardware, "stack": canary.stack},
        now=now,
    )
