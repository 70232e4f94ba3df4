"""Fleets: taken in, let act, stopped and let go on."""

from dataclasses import replace

from controlplane.domain.errors import ConflictError
from controlplane.domain.fleet import Fleet, Mode
from controlplane.services import effects
from controlplane.services.change import Act, Change
from controlplane.store import audit as audit_store
from controlplane.store import fleets as fleet_store
from controlplane.store import queries
from controlplane.store.queries import FleetRow
from controlplane.store.transaction import Connection


def adopt(conn: Connection, name: str, *, act: Act) -> Change:
    """Take in a fleet, in mode `observe`.

    Raises:
        ConflictError: there is one of that name.
    """
    fleet = Fleet(
        id=act.new_id(), name=name, mode=Mode.OBSERVE, promoted={}, stopped_reason=None, version=1
    )
    fleet_store.insert(conn, fleet)
    _audit(conn, fleet, "fleet.adopted", act=act)
    sentence = f"{name} is adopted in mode observe: its workers are judged, nothing is flipped"
    return Change(subject=show(conn, name), effects=(sentence,))


def set_mode(conn: Connection, name: str, mode: Mode, *, act: Act) -> Change:
    """Let the fleet act, or only judge.

    Raises:
        NotFoundError: no fleet of that name.
        ConflictError: it is a sample.
    """
    fleet = fleet_store.get(conn, name)
    if fleet.is_sample and mode is Mode.ENFORCE:
        raise ConflictError(f"{name} is sample data: it has no workers and only observes")
    if fleet.mode is mode:
        return _unchanged(conn, name, f"it is in mode {mode} already")
    sentence = (
        f"Steadyframe flips workers of {name} by itself from now on"
        if mode is Mode.ENFORCE
        else f"Steadyframe judges {name} and records what it would have done, and flips nothing"
    )
    return _saved(conn, replace(fleet, mode=mode), f"fleet.{mode}", sentence, act=act)


def stop_the_line(conn: Connection, name: str, *, act: Act) -> Change:
    """Send every worker to its fallback until `lift`, in whatever mode the fleet is.

    Raises:
        NotFoundError: no fleet of that name.
    """
    fleet = fleet_store.get(conn, name)
    if fleet.stopped_reason is not None:
        return _unchanged(conn, name, f"the line is stopped already: {fleet.stopped_reason}")
    sentence = (
        f"every worker of {name} goes to its fallback and stays there until the line is lifted"
    )
    stopped = replace(fleet, stopped_reason=act.reason)
    return _saved(conn, stopped, "fleet.line_stopped", sentence, act=act)


def lift(conn: Connection, name: str, *, act: Act) -> Change:
    """End a stop-the-line.

    Raises:
        NotFoundError: no fleet of that name.
    """
    fleet = fleet_store.get(conn, name)
    if fleet.stopped_reason is None:
        return _unchanged(conn, name, "the line is not stopped")
    sentence = f"workers of {name} go back to what is promoted, pinned or under test"
    lifted = replace(fleet, stopped_reason=None)
    return _saved(conn, lifted, "fleet.line_lifted", sentence, act=act)


def show(conn: Connection, name: str) -> FleetRow:
    """One fleet at a glance.

    Raises:
        NotFoundError: no fleet of that name.
    """
    fleet_store.get(conn, name)
    return next(row for row in queries.fleet_rows(conn) if row.name == name)


def list_all(conn: Connection) -> tuple[FleetRow, ...]:
    """Every fleet, by name."""
    return queries.fleet_rows(conn)


def _saved(conn: Connection, fleet: Fleet, action: str, sentence: str, *, act: Act) -> Change:
    fleet_store.save(conn, fleet)
    _audit(conn, fleet, action, act=act)
    woken, told = effects.on_workers(conn, fleet=fleet.name, now=act.now)
    return Change(subject=show(conn, fleet.name), effects=(sentence, *told), woken=woken)


def _unchanged(conn: Connection, name: str, why: str) -> Change:
    return Change(subject=show(conn, name), effects=(f"nothing changes: {why}",))


def _audit(conn: Connection, fleet: Fleet, action: str, *, act: Act) -> None:
    audit_store.append(
        conn,
        actor=act.actor,
        action=action,
        target=fleet.name,
        reason=act.reason,
        detail={"mode": fleet.mode.value, "stopped": fleet.stopped_reason is not None},
        now=act.now,
    )
