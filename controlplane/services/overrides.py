"""What an operator decides for one worker: pins, cordons, and the way back into service."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain import flag as flags
from controlplane.domain.desired import Layer
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.flag import Flag
from controlplane.domain.fleet import Pin, Worker
from controlplane.services import desired_states, effects, workers
from controlplane.services.change import Act, Change
from controlplane.store import audit as audit_store
from controlplane.store import flags as flag_store
from controlplane.store import workers as worker_store
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A pin that is asked for."""

    flag: str
    variant: str
    lasts_s: int


def pin(conn: Connection, fleet: str, name: str, *, wanted: Wanted, act: Act) -> Change:
    """Hold one flag of one worker at a variant, for some hours.

    Raises:
        NotFoundError: no such fleet, worker or flag.
        InvalidValueError: the flag has no such variant.
        ConflictError: the worker's build does not know it.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    flag = flags.require(flag_store.catalogue(conn), wanted.flag)
    _check_known(worker, flag, wanted.variant)
    made = Pin(
        flag=flag.name,
        variant=wanted.variant,
        reason=act.reason,
        actor=act.actor,
        expires_at=act.now + timedelta(seconds=wanted.lasts_s),
    )
    sentence = (
        f"{name} is pinned to {flag.name}={wanted.variant} until"
        f" {made.expires_at:%Y-%m-%d %H:%M}Z and takes part in no canary of that flag"
    )
    detail = {"flag": flag.name, "variant": wanted.variant, "lasts_s": wanted.lasts_s}
    return _change(
        conn,
        worker,
        lambda: worker_store.put_pin(conn, worker_id=worker.id, pin=made, now=act.now),
        told=_Told(action="worker.pinned", sentence=sentence, detail=detail),
        act=act,
    )


def unpin(conn: Connection, fleet: str, name: str, *, flag: str, act: Act) -> Change:
    """End a pin.

    Raises:
        NotFoundError: no such fleet or worker, or the flag is not pinned there.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    if not any(one.flag == flag for one in worker.pins):
        raise NotFoundError("pin", flag, known=(one.flag for one in worker.pins))
    sentence = f"{name} goes back to what its fleet runs of {flag}"
    return _change(
        conn,
        worker,
        lambda: worker_store.remove_pin(conn, worker_id=worker.id, flag=flag),
        told=_Told(action="worker.unpinned", sentence=sentence, detail={"flag": flag}),
        act=act,
    )


def set_cordoned(conn: Connection, fleet: str, name: str, *, is_cordoned: bool, act: Act) -> Change:
    """Take the worker out of service, or back.

    Raises:
        NotFoundError: no such fleet or worker.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    word = "cordoned" if is_cordoned else "uncordoned"
    if worker.is_cordoned is is_cordoned:
        sentence = f"nothing changes: {name} is {word} already"
        return Change(subject=workers.shown(worker), effects=(sentence,))
    sentence = (
        f"{name} takes no new session and no part in canaries; the session it has goes on"
        if is_cordoned
        else f"{name} takes sessions again"
    )
    return _change(
        conn,
        worker,
        lambda: worker_store.set_cordoned(conn, worker_id=worker.id, is_cordoned=is_cordoned),
        told=_Told(action=f"worker.{word}", sentence=sentence, detail={}, is_choice=False),
        act=act,
    )


def restore(conn: Connection, fleet: str, name: str, *, act: Act) -> Change:
    """Take a worker back whose breaker opened or that was quarantined: someone has looked.

    Raises:
        NotFoundError: no such fleet or worker.
        ConflictError: it is at the fallback by break-glass, which only its own machine can end.
    """
    worker = worker_store.get(conn, fleet=fleet, name=name)
    if worker.is_break_glass:
        raise ConflictError(
            f"{name} was forced to its fallback on its own machine: take the file or the variable"
            " away there (`python -m worker.main local clear`)"
        )
    if worker.trip is None and not worker.is_quarantined:
        sentence = f"nothing changes: the breaker of {name} is closed and it is not quarantined"
        return Change(subject=workers.shown(worker), effects=(sentence,))

    def write() -> None:
        worker_store.close_trip(conn, worker_id=worker.id, reason=act.reason, now=act.now)
        worker_store.set_quarantined(conn, worker_id=worker.id, is_quarantined=False)

    why = f"its breaker ({worker.trip.reason}) is closed" if worker.trip else "quarantine ends"
    told = _Told(
        action="worker.restored",
        sentence=f"{name} is back in service: {why}",
        detail={"trip": worker.trip.reason if worker.trip else None},
    )
    return _change(conn, worker, write, told=told, act=act)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Told:
    action: str
    sentence: str
    detail: Mapping[str, object]
    is_choice: bool = True  # of what the worker runs


def _change(
    conn: Connection, worker: Worker, write: Callable[[], object], *, told: _Told, act: Act
) -> Change:
    write()
    audit_store.append(
        conn,
        actor=act.actor,
        action=told.action,
        target=f"{worker.fleet}/{worker.name}",
        reason=act.reason,
        detail=told.detail,
        now=act.now,
    )
    woken, flips = effects.on_worker(conn, worker, now=act.now)
    overruled = _overruled(conn, worker, now=act.now) if told.is_choice else ()
    return Change(
        subject=workers.show(conn, worker.fleet, worker.name),
        effects=(told.sentence, *flips, *overruled),
        woken=woken,
    )


# Layers that speak louder than what an operator asks of one worker, and what ends each.
_LOUDER: Mapping[Layer, str] = {
    Layer.BREAKER: "`steadyframe worker restore` closes it",
    Layer.BREAK_GLASS: "only that machine can end it",
    Layer.STOP_THE_LINE: "`steadyframe lift` ends it",
    Layer.OBSERVED: "`steadyframe fleet enforce` lets it be flipped",
}


def _overruled(conn: Connection, worker: Worker, *, now: datetime) -> tuple[str, ...]:
    """Why what was asked changes nothing for now, flag by flag."""
    after = worker_store.by_id(conn, worker.id)
    seen = desired_states.situation(conn, fleet=worker.fleet, workers=(after,))
    return tuple(
        f"{worker.name} stays on {choice.flag}={choice.variant} meanwhile: {choice.reason};"
        f" {_LOUDER[choice.layer]}"
        for choice in seen.resolve(after, now=now).choices
        if choice.layer in _LOUDER
    )


def _check_known(worker: Worker, flag: Flag, variant: str) -> None:
    if flag.variant(variant).is_canary_only:
        raise ConflictError(
            f"{flag.name}={variant} is for canaries only: start one instead"
            " (`steadyframe canary start`)"
        )
    known = worker.capabilities.get(flag.name, ())
    if variant not in known:
        listed = ", ".join(sorted(known)) or "none"
        raise ConflictError(
            f"the build of {worker.name} does not know {flag.name}={variant}; it knows: {listed}"
        )
