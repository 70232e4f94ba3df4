"""What people say of variants: that a running fleet does well with one, or that it does not.

A person speaks for one fleet, and cannot make good what failed in a canary.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from controlplane.domain import flag as flags
from controlplane.domain import ledger
from controlplane.domain.desired import Qualification
from controlplane.domain.errors import ConflictError, InvalidValueError, one_of
from controlplane.domain.fleet import Fleet, Mode, Worker
from controlplane.domain.ledger import Record, Standing
from controlplane.services import effects
from controlplane.services.change import Act, Change
from controlplane.services.ledger import shown
from controlplane.store import audit as audit_store
from controlplane.store import canaries as canary_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import qualifications as qualification_store
from controlplane.store import workers as worker_store
from controlplane.store.qualifications import Entry, Revocation
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Attestation:
    """What a person says of a fleet: this variant does well there."""

    fleet: str
    flag: str
    variant: str
    hardware: str | None = None  # None: every hardware of the fleet
    stack: str | None = None  # None: every stack of the fleet


def attest(conn: Connection, wanted: Attestation, *, act: Act) -> Change:
    """Record that a fleet runs the variant well, on each hardware and stack that it has.

    Where the fleet only observes and has nothing promoted, the variant is promoted too: it is what
    its workers run, and what they are to go on with once it enforces.

    Raises:
        NotFoundError: no such fleet or flag.
        InvalidValueError: a variant, hardware or stack that is not there; says which are.
        ConflictError: nobody runs it there, or it failed in a canary; says what to do.
    """
    qualification_store.lock(conn)
    fleet = fleet_store.get(conn, wanted.fleet)
    flag = flags.require(flag_store.catalogue(conn), wanted.flag)
    if flag.variant(wanted.variant).is_canary_only:
        raise ConflictError(f"{wanted.variant} exists to be caught: nothing qualifies it")
    workers = _concerned(worker_store.in_fleet(conn, fleet=fleet.name), wanted)
    _check_running(workers, fleet, wanted)
    new = _not_qualified(conn, workers, wanted)
    promotes = _promotes(workers, fleet, wanted)
    if not new and not promotes:
        return Change(
            subject=_told(wanted, ()), effects=("nothing changes: it is qualified there",)
        )
    numbers = [_attest(conn, subject, fleet, act=act) for subject in new]
    if promotes:
        promoted = {**fleet.promoted, wanted.flag: wanted.variant}
        fleet_store.save(conn, replace(fleet, promoted=promoted))
    _audit(conn, wanted, "qualification.attested", act=act)
    woken, moved = effects.on_workers(conn, fleet=fleet.name, now=act.now)
    sentences = [_attested(subject, workers, fleet) for subject in new]
    if promotes:
        sentences.append(f"{fleet.name} has it as promoted from now on, since its workers run it")
    return Change(subject=_told(wanted, numbers), effects=(*sentences, *moved), woken=woken)


def revoke(conn: Connection, number: int, *, act: Act) -> Change:
    """Take back what qualifies the variant of record `number`: the older records of it, too.

    Of an attestation only those of its fleet; of what a canary proved, in every fleet.

    Raises:
        NotFoundError: no record of that number.
        ConflictError: it is a disqualification, which only another canary ends.
    """
    qualification_store.lock(conn)
    record = qualification_store.get(conn, number)
    if record.standing is Standing.DISQUALIFIED:
        raise ConflictError(
            f"record {number} is a disqualification: it ends when another canary of that variant"
            " passes, which an admin starts"
        )
    if record.revoked_at is not None:
        why = f"it is revoked since {record.revoked_at:%Y-%m-%d %H:%M}Z: {record.revoked_reason}"
        return Change(subject=shown(record), effects=(f"nothing changes: {why}",))
    by = Revocation(actor=act.actor, reason=act.reason, now=act.now)
    qualification_store.revoke(conn, record.subject, fleet=record.fleet, by=by)
    _audit_record(conn, record, "qualification.revoked", act=act)
    woken, moved = _moved(conn, record, act=act)
    subject = shown(qualification_store.get(conn, number))
    return Change(subject=subject, effects=(*_revoked(conn, record), *moved), woken=woken)


def _concerned(workers: Sequence[Worker], wanted: Attestation) -> tuple[Worker, ...]:
    """Workers that know the variant, on the hardware and stack that are meant."""
    if not workers:
        raise ConflictError(f"no worker has registered in fleet {wanted.fleet}: start some first")
    for key, asked in (("hardware", wanted.hardware), ("stack", wanted.stack)):
        there = {getattr(worker, key) for worker in workers}
        if asked is not None and asked not in there:
            raise InvalidValueError(key, asked, allowed=one_of(there))
    return tuple(
        worker
        for worker in workers
        if wanted.hardware in (None, worker.hardware)
        and wanted.stack in (None, worker.stack)
        and wanted.variant in worker.capabilities.get(wanted.flag, ())
    )


def _check_running(workers: Sequence[Worker], fleet: Fleet, wanted: Attestation) -> None:
    is_promoted = fleet.promoted.get(wanted.flag) == wanted.variant
    if workers and (is_promoted or any(_runs(worker, wanted) for worker in workers)):
        return
    raise ConflictError(
        f"nothing to attest: no worker of fleet {fleet.name} that is meant runs {wanted.flag}="
        f"{wanted.variant}, and it is not promoted there; let a canary prove it:"
        f" `steadyframe canary start {fleet.name} {wanted.flag} {wanted.variant}`"
    )


def _runs(worker: Worker, wanted: Attestation) -> bool:
    return worker.effective_flags.get(wanted.flag) == wanted.variant


def _not_qualified(
    conn: Connection, workers: Sequence[Worker], wanted: Attestation
) -> tuple[Qualification, ...]:
    new = []
    for hardware, stack in sorted({worker.stratum for worker in workers}):
        subject = Qualification(
            flag=wanted.flag, variant=wanted.variant, hardware=hardware, stack=stack
        )
        records = qualification_store.of_subject(conn, subject)
        record = ledger.current(records, fleet=wanted.fleet)
        if record is not None and record.standing is Standing.DISQUALIFIED:
            raise ConflictError(
                f"{wanted.flag}={wanted.variant} is disqualified on {hardware}, stack {stack},"
                f" since {record.canary} was rolled back ({record.reason}): no word makes that"
                " good, only another canary, which an admin starts; name another hardware or stack"
                " to attest the rest"
            )
        if record is None:
            new.append(subject)
    return tuple(new)


def _promotes(workers: Sequence[Worker], fleet: Fleet, wanted: Attestation) -> bool:
    # Where the fleet enforces, a promotion by a person's word would be a way around the canary.
    return (
        fleet.mode is Mode.OBSERVE
        and wanted.flag not in fleet.promoted
        and any(_runs(worker, wanted) for worker in workers)
    )


def _attest(conn: Connection, subject: Qualification, fleet: Fleet, *, act: Act) -> int:
    entry = Entry(
        subject=subject,
        standing=Standing.QUALIFIED,
        actor=act.actor,
        reason=act.reason,
        fleet=fleet.name,
    )
    return qualification_store.append(conn, entry, now=act.now)


def _attested(subject: Qualification, workers: Sequence[Worker], fleet: Fleet) -> str:
    there = [one for one in workers if one.stratum == (subject.hardware, subject.stack)]
    num_on_it = sum(one.effective_flags.get(subject.flag) == subject.variant for one in there)
    return (
        f"{_words(subject)} counts as qualified in {fleet.name}, on your word and without a canary:"
        f" {num_on_it} of {len(there)} workers that know it run it now"
    )


def _told(wanted: Attestation, numbers: Sequence[int]) -> Mapping[str, object]:
    return {
        "fleet": wanted.fleet,
        "flag": wanted.flag,
        "variant": wanted.variant,
        "numbers": list(numbers),
    }


def _moved(
    conn: Connection, record: Record, *, act: Act
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """As `effects.on_workers`, for every fleet that has the variant as promoted."""
    woken: list[str] = []
    told: list[str] = []
    for fleet in fleet_store.list_all(conn):
        is_promoted = fleet.promoted.get(record.subject.flag) == record.subject.variant
        if is_promoted and record.fleet in (None, fleet.name):
            changed, sentences = effects.on_workers(conn, fleet=fleet.name, now=act.now)
            woken += changed
            told += [f"fleet {fleet.name}: {sentence}" for sentence in sentences]
    return tuple(woken), tuple(told) or (
        "no fleet has it as promoted, so no worker is told anything",
    )


def _revoked(conn: Connection, record: Record) -> tuple[str, ...]:
    where = f"fleet {record.fleet}" if record.fleet else "every fleet"
    records = qualification_store.of_subject(conn, record.subject)
    left = ledger.current(records, fleet=record.fleet) if record.fleet else None
    subject = record.subject
    comparing = [
        one.name
        for one in canary_store.live(conn)
        if one.compared.get(subject.flag) == subject.variant
        and (one.hardware, one.control_stack) == (subject.hardware, subject.stack)
        and record.fleet in (None, one.fleet)
    ]
    still = f", but record {left.number} still says so for every fleet" if left else ""
    return (
        f"{_words(subject)} is qualified in {where} no longer by what was recorded there{still}",
        *(f"{name} compares with it, and loses its controls" for name in comparing),
    )


def _words(subject: Qualification) -> str:
    return f"{subject.flag}={subject.variant} on {subject.hardware}, stack {subject.stack},"


def _audit(conn: Connection, wanted: Attestation, action: str, *, act: Act) -> None:
    audit_store.append(
        conn,
        actor=act.actor,
        action=action,
        target=f"{wanted.flag}={wanted.variant}",
        reason=act.reason,
        detail={"fleet": wanted.fleet, "hardware": wanted.hardware, "stack": wanted.stack},
        now=act.now,
    )


def _audit_record(conn: Connection, record: Record, action: str, *, act: Act) -> None:
    subject = record.subject
    audit_store.append(
        conn,
        actor=act.actor,
        action=action,
        target=f"{subject.flag}={subject.variant}",
        reason=act.reason,
        detail={
            "number": record.number,
            "fleet": record.fleet,
            "hardware": subject.hardware,
            "stack": subject.stack,
        },
        now=act.now,
    )
