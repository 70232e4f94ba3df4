"""Sessions of the past, from a file: for reports only, never evidence."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain import imported
from controlplane.domain.errors import ConflictError
from controlplane.domain.fleet import Fleet, Mode
from controlplane.domain.imported import ImportedSession
from controlplane.services.change import Act, Change
from controlplane.store import audit as audit_store
from controlplane.store import flags as flag_store
from controlplane.store import fleets as fleet_store
from controlplane.store import imported as imported_store
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A file as it was sent."""

    columns: Sequence[str]
    lines: Sequence[int]  # of the file, one a row
    rows: Sequence[Sequence[str]]


def parsed(conn: Connection, table: Table, *, now: datetime) -> tuple[ImportedSession, ...]:
    """The sessions of `table`.

    Raises:
        InvalidValueError: its columns are not as they must be.
        BadRowsError: some of its rows are bad.
    """
    known = {
        flag.name: [variant.name for variant in flag.variants]
        for flag in flag_store.catalogue(conn)
    }
    rows = zip(table.lines, table.rows, strict=True)
    return imported.parse(table.columns, rows, known=known, now=now)


def take(
    conn: Connection,
    sessions: Sequence[ImportedSession],
    *,
    fleet: str,
    is_sample: bool,
    act: Act,
) -> Change:
    """Keep the sessions of `sessions` that are not known yet.

    Args:
        conn: a connection.
        sessions: of the file.
        fleet: the fleet they were of; a sample's is made if it is not there.
        is_sample: they are made up, to look at.
        act: who and why.

    Raises:
        NotFoundError: no fleet of that name.
        ConflictError: made-up sessions for a real fleet, or real ones for a sample.
    """
    its_fleet = _sample(conn, fleet, act=act) if is_sample else fleet_store.get(conn, fleet)
    if its_fleet.is_sample != is_sample:
        kind = "sample data" if its_fleet.is_sample else "a real fleet"
        raise ConflictError(f"{fleet} is {kind}: keep made-up and real sessions in fleets apart")
    num_new = imported_store.insert_new(conn, fleet_id=its_fleet.id, sessions=sessions, now=act.now)
    num_known = len(sessions) - num_new
    detail = {"num_imported": num_new, "num_known": num_known, "is_sample": is_sample}
    audit_store.append(
        conn,
        actor=act.actor,
        action="sessions.imported",
        target=fleet,
        reason=act.reason,
        detail=detail,
        now=act.now,
    )
    return Change(subject={"fleet": fleet, **detail}, effects=_effects(sessions, fleet, num_new))


def _sample(conn: Connection, name: str, *, act: Act) -> Fleet:
    found = [fleet for fleet in fleet_store.list_all(conn) if fleet.name == name]
    if found:
        return found[0]
    fleet = Fleet(
        id=act.new_id(),
        name=name,
        mode=Mode.OBSERVE,
        promoted={},
        stopped_reason=None,
        version=1,
        is_sample=True,
    )
    fleet_store.insert(conn, fleet)
    return fleet


def _effects(sessions: Sequence[ImportedSession], fleet: str, num_new: int) -> tuple[str, ...]:
    if not sessions:
        return ("nothing changes: there is no session in it",)
    days = [session.started_at.date() for session in sessions]
    return (
        f"{num_new} sessions from {min(days)} to {max(days)} are imported into fleet {fleet}",
        f"{len(sessions) - num_new} are there already and stay as they are",
        "they stand in its reports, marked as imported; no canary is judged on them",
    )
