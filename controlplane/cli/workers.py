"""`steadyframe worker ...`, `flip` and `unpin`: what concerns one worker.

A worker is named by its fleet and its own name, as in every route and log.
"""

from collections.abc import Mapping
from typing import Annotated, Final

import typer

from controlplane.cli import acting, output
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.fleets import FleetName
from controlplane.cli.session import Session, action, query

app = typer.Typer(help="See workers, and why each runs what it runs.")

WorkerName = Annotated[str, typer.Argument(metavar="WORKER", help="Name of the worker.")]
FlagName = Annotated[str, typer.Argument(metavar="FLAG", help="Name of the flag.")]
VariantName = Annotated[str, typer.Argument(metavar="VARIANT", help="Value of the flag.")]
SECONDS_AN_HOUR: Final = 3600


@query(app, "list")
def list_workers(session: Session, fleet: FleetName) -> None:
    """Every worker of a fleet: what it runs, and whether that is what is wanted."""
    workers = list(session.client.items(f"/v1/fleets/{fleet}/workers"))
    if session.as_json:
        output.write_json(workers)
        return
    output.write_table(
        ("worker", "hardware", "flags", "gen", "state", "seen"),
        [
            (
                worker["name"],
                worker["hardware"],
                worker.get("effective_flags"),
                worker.get("effective_generation"),
                state_of(worker),
                output.time_of(worker.get("last_seen_at"))[11:],
            )
            for worker in workers
        ],
        empty=f"no worker has registered in fleet {fleet}",
    )


@query(app, "show")
def show(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """One worker: desired and effective flags, generation, incarnation, pins and breaker."""
    found = session.client.get(f"/v1/fleets/{fleet}/workers/{worker}")
    if session.as_json:
        output.write_json(found)
        return
    output.write_fields(
        f"worker {fleet}/{found['name']}",
        {
            "state": state_of(found),
            "hardware": found.get("hardware"),
            "stack": found.get("stack"),
            "incarnation": found.get("incarnation"),
            "address": found.get("address"),
            "desired": found.get("desired_flags"),
            "effective": found.get("effective_flags"),
            "generation": f"{found.get('effective_generation')} of "
            f"{found.get('desired_generation')} wanted",
            "retained": found.get("flag_bytes"),
            "pins": [_pin_text(pin) for pin in found.get("pins", [])],
            "last seen": output.time_of(found.get("last_seen_at")),
            "last record": output.time_of(found.get("last_record_at")),
        },
    )


@query(app, "explain")
def explain(session: Session, fleet: FleetName, worker: WorkerName) -> None:
    """For each flag: the variant wanted, the layer that won, and its reason."""
    found = session.client.get(f"/v1/fleets/{fleet}/workers/{worker}/explain")
    if session.as_json:
        output.write_json(found)
        return
    for reason in found.get("reasons", []):
        output.write_fields(
            f"{reason['flag']} = {reason['variant']}",
            {"decided by": reason["layer"], "because": reason["reason"]},
        )


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


def state_of(worker: Mapping[str, Json]) -> str:
    """The most pressing thing about a worker, in a word or three."""
    if worker.get("is_quarantined"):
        return "quarantined"
    if worker.get("is_break_glass"):
        return "break-glass"
    if trip := worker.get("trip"):
        return f"tripped: {trip.get('reason')}"
    if worker.get("is_cordoned"):
        return "cordoned"
    if worker["effective_generation"] < worker["desired_generation"]:
        return "changing"
    # Sessions draw their arm on the worker, so that it runs what its fleet does not.
    return "as wanted" if worker.get("is_effective") else "in a canary"


def _pin_text(pin: Mapping[str, Json]) -> str:
    until = output.time_of(pin.get("expires_at"))
    return f"{pin['flag']}={pin['variant']} until {until} ({pin.get('reason')})"
