"""`steadyframe worker ...`, `flip` and `unpin`: what concerns one worker.

A worker is named by its fleet and its own name, as in every route and log.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final

import typer

from controlplane.cli import acting, names, output, upkeep
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.fleets import FleetName
from controlplane.cli.session import Session, action, query
from controlplane.cli.upkeep import Note
from controlplane.contract import vocabulary

app = typer.Typer(help="See workers, and why each runs what it runs.")

WorkerName = Annotated[
    str,
    typer.Argument(metavar="WORKER", help="Name of the worker.", callback=names.named("WORKER")),
]
FlagName = Annotated[
    str, typer.Argument(metavar="FLAG", help="Name of the flag.", callback=names.named("FLAG"))
]
VariantName = Annotated[
    str,
    typer.Argument(metavar="VARIANT", help="Value of the flag.", callback=names.named("VARIANT")),
]
SECONDS_AN_HOUR: Final = 3600


@query(app, "list")
def list_workers(session: Session, fleet: FleetName) -> None:
    """Every worker of a fleet: what it runs, and whether that is what is wanted."""
    workers = list(session.client.items(f"/v1/fleets/{fleet}/workers"))
    if session.as_json:
        output.write_json(workers)
        return
    now = _now()
    output.write_table(
        ("worker", "hardware", "flags", "gen", "state"),
        [
            (
                output.unbroken(worker["name"]),
                worker["hardware"],
                # `worker show` has all.
                vocabulary.steered(
                    worker.get("effective_flags") or {}, worker.get("desired_flags") or {}
                ),
                worker.get("effective_generation"),
                state_text(worker, now=now),
            )
            for worker in workers
        ],
        empty=f"no worker has registered in fleet {fleet}",
    )
    upkeep.write_line_note(session.client.get(f"/v1/fleets/{fleet}"), fleet=fleet)
    upkeep.write_notes(workers, fleet=fleet, now=now)


@query(app, "show")
def show(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """One worker: desired and effective flags, generation, incarnation, pins and breaker."""
    found = session.client.get(f"/v1/fleets/{fleet}/workers/{worker}")
    if session.as_json:
        output.write_json(found)
        return
    now = _now()
    output.write_fields(
        f"worker {fleet}/{found['name']}",
        {
            "state": state_text(found, now=now),
            "hardware": found.get("hardware"),
            "stack": found.get("stack"),
            "incarnation": found.get("incarnation"),
            "address": found.get("address"),
            "desired": found.get("desired_flags"),
            "effective": found.get("effective_flags"),
            "generation": f"{found.get('effective_generation')} of "
            f"{found.get('desired_generation')} wanted",
            "retained": _retained(found.get("flag_bytes")),
            "breaker": upkeep.trip_text(found["trip"]) if found.get("trip") else "closed",
            "pins": [upkeep.pin_text(pin) for pin in upkeep.pins_of(found, now=now)],
            "last seen": output.time_of(found.get("last_seen_at")),
            "last record": output.time_of(found.get("last_record_at")),
        },
    )
    upkeep.write_line_note(session.client.get(f"/v1/fleets/{fleet}"), fleet=fleet)
    upkeep.write_notes([found], fleet=fleet, now=now)


@query(app, "explain")
def explain(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """For each flag: the variant wanted, the layer that won, its reason, and what ends it."""
    found = session.client.get(f"/v1/fleets/{fleet}/workers/{worker}/explain")
    if session.as_json:
        output.write_json(found)
        return
    seen = session.client.get(f"/v1/fleets/{fleet}/workers/{worker}")
    for reason in found.get("reasons", []):
        output.write_fields(
            f"{reason['flag']} = {reason['variant']}",
            {"decided by": reason["layer"], "because": reason["reason"]},
        )
    told = dict.fromkeys(_layer_note(reason, fleet) for reason in found.get("reasons", []))
    for note in filter(None, told):
        output.write_line()
        upkeep.write_note(note)
    upkeep.write_notes([seen], fleet=fleet, now=_now())


@action(app, "restore")
def restore(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """Take a worker back whose breaker opened or that was quarantined."""
    acting.make_and_tell(session, _of_worker(fleet, worker, "restore"))


@action(app, "cordon")
def cordon(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """Take a worker out of service: no new session, no part in canaries."""
    acting.make_and_tell(session, _of_worker(fleet, worker, "cordon"))


@action(app, "uncordon")
def uncordon(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """End a cordon."""
    acting.make_and_tell(session, _of_worker(fleet, worker, "uncordon"))


def _of_worker(fleet: str, worker: str, verb: str) -> Change:
    return Change(
        title=f"{verb} worker {fleet}/{worker}",
        path=f"/v1/fleets/{fleet}/workers/{worker}/{verb}",
        body={},
    )


def register_pins(root: typer.Typer) -> None:
    """Put `flip` and `unpin` on the top level."""

    @action(root, "flip")
    def flip(
        session: Session,
        fleet: FleetName,
        worker: WorkerName,
        flag: FlagName,
        variant: VariantName,
        *,
        hours: Annotated[float, typer.Option("--hours", min=0.01, max=24, help="Ends after.")] = 4,
    ) -> None:
        """Pin one worker to a variant for some hours; it takes part in no canary meanwhile."""
        body = {
            "flag": flag,
            "variant": variant,
            "expires_in_s": round(hours * SECONDS_AN_HOUR),
        }
        path = f"/v1/fleets/{fleet}/workers/{worker}/pins"
        title = f"pin worker {fleet}/{worker} to {flag}={variant} for {hours:g} h"
        acting.make_and_tell(session, Change(title=title, path=path, body=body))

    @action(root, "unpin")
    def unpin(session: Session, fleet: FleetName, worker: WorkerName, flag: FlagName) -> None:
        """End a pin: the worker goes back to what its fleet runs."""
        path = f"/v1/fleets/{fleet}/workers/{worker}/unpin"
        title = f"end the pin of {flag} on worker {fleet}/{worker}"
        acting.make_and_tell(session, Change(title=title, path=path, body={"flag": flag}))


def state_of(worker: Mapping[str, Json], *, now: datetime) -> str:
    """The most pressing thing about a worker, in a word or three."""
    if kinds := upkeep.kinds_of(worker, now=now):
        return f"tripped: {worker['trip'].get('reason')}" if kinds[0] == "tripped" else kinds[0]
    if worker["effective_generation"] < worker["desired_generation"]:
        return "changing"
    # Sessions draw their arm on the worker, so that it runs what its fleet does not.
    return "as wanted" if worker.get("is_effective") else "in a canary"


def state_text(worker: Mapping[str, Json], *, now: datetime) -> str:
    """`state_of` a worker; of one that is silent, since when."""
    return upkeep.silence(worker, now=now) or state_of(worker, now=now)


def _layer_note(reason: Mapping[str, Json], fleet: str) -> Note | None:
    """What ends the layer, if it is the fleet's; the worker's own are told with its notes."""
    match reason["layer"]:
        case "stop_the_line":
            return upkeep.line_note(fleet)
        case "observed":
            command = f"steadyframe fleet enforce {fleet}"
            return Note(sentence="the fleet only observes", command=command)
        case _:
            return None


def _retained(flag_bytes: Mapping[str, Json] | None) -> Mapping[str, str]:
    return {flag: output.size(kept) for flag, kept in (flag_bytes or {}).items()}


def _now() -> datetime:
    from controlplane.clock import SystemClock

    return SystemClock().now()
