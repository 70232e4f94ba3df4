"""`steadyframe fleet ...`, `stop-the-line` and `lift`: what concerns a whole fleet."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Final

import typer

from controlplane.cli import acting, names, output, upkeep
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.session import Session, action, query

app = typer.Typer(help="Adopt fleets, see them, and say how far Steadyframe may act.")

SAMPLE: Final = "sample data"
MAX_NAMED: Final = 10
FleetName = Annotated[
    str, typer.Argument(metavar="FLEET", help="Name of the fleet.", callback=names.named("FLEET"))
]


@query(app, "list")
def list_fleets(session: Session) -> None:
    """Every fleet with its mode and how many workers it has."""
    fleets = list(session.client.items("/v1/fleets"))
    if session.as_json:
        output.write_json(fleets)
        return
    output.write_table(
        ("fleet", "mode", "workers", "promoted", "stopped"),
        [
            (
                fleet["name"],
                mode_of(fleet),
                fleet.get("num_workers"),
                fleet.get("promoted"),
                fleet.get("stopped_reason"),
            )
            for fleet in fleets
        ],
        empty="no fleet yet: `steadyframe fleet adopt NAME --reason ...`",
    )


@query(app, "show")
def show(session: Session, fleet: FleetName) -> None:
    """One fleet: mode, promoted variants, stop-the-line, and the workers that are held."""
    found = session.client.get(f"/v1/fleets/{fleet}")
    workers = list(session.client.items(f"/v1/fleets/{fleet}/workers"))
    now = _now()
    held = upkeep.by_kind(workers, now=now)
    if session.as_json:
        output.write_json({**found, "held": held})
        return
    output.write_fields(
        f"fleet {found['name']}",
        {
            "mode": mode_of(found),
            "workers": len(workers),
            "promoted": found.get("promoted"),
            "stopped": found.get("stopped_reason"),
            **_held(held, workers, now=now),
        },
    )
    upkeep.write_line_note(found, fleet=fleet)
    upkeep.write_notes(workers, fleet=fleet, now=now)


@action(app, "adopt")
def adopt(session: Session, fleet: FleetName) -> None:
    """Take a running fleet in; it starts in `observe`, where nothing is flipped."""
    change = Change(title=f"adopt fleet {fleet}", path="/v1/fleets", body={"name": fleet})
    acting.make_and_tell(session, change)


@action(app, "enforce")
def enforce(session: Session, fleet: FleetName) -> None:
    """Let Steadyframe flip workers of the fleet by itself."""
    acting.make_and_tell(session, _mode(fleet, "enforce"))


@action(app, "observe")
def observe(session: Session, fleet: FleetName) -> None:
    """Judge and record, but flip nothing."""
    acting.make_and_tell(session, _mode(fleet, "observe"))


def register_line(root: typer.Typer) -> None:
    """Put `stop-the-line` and `lift` on the top level: they are looked for in a hurry."""

    @action(root, "stop-the-line")
    def stop_the_line(session: Session, fleet: FleetName) -> None:
        """Send every worker of the fleet to its fallback now, and keep it there until `lift`."""
        change = Change(
            title=f"stop the line of fleet {fleet}", path=f"/v1/fleets/{fleet}/stop-the-line"
        )
        acting.make_and_tell(session, change)

    @action(root, "lift")
    def lift(session: Session, fleet: FleetName) -> None:
        """End a stop-the-line: workers go back to what is promoted."""
        change = Change(
            title=f"lift the stop-the-line of fleet {fleet}", path=f"/v1/fleets/{fleet}/lift"
        )
        acting.make_and_tell(session, change)


def mode_of(fleet: Mapping[str, Json]) -> str:
    """How far Steadyframe may act there; of a fleet that is none, that it is a sample."""
    return SAMPLE if fleet.get("is_sample") else str(fleet["mode"])


def _held(
    held: Mapping[str, Sequence[str]], workers: Sequence[Mapping[str, Json]], *, now: datetime
) -> Mapping[str, str]:
    """Of each kind how many and which; of those that are silent since when, too."""
    silent = [
        f"{worker['name']} {told.removeprefix('silent').strip()}".strip()
        for worker in workers
        if (told := upkeep.silence(worker, now=now))
    ]
    return {
        kind: _counted(silent if kind == "silent" else found)
        for kind, found in held.items()
        if found
    }


def _counted(held: Sequence[str]) -> str:
    """How many and which, as far as a person reads names."""
    more = len(held) - MAX_NAMED
    return f"{len(held)}: {', '.join(held[:MAX_NAMED])}" + (f" and {more} more" if more > 0 else "")


def _now() -> datetime:
    from controlplane.clock import SystemClock

    return SystemClock().now()


def _mode(fleet: str, mode: str) -> Change:
    return Change(
        title=f"set fleet {fleet} to {mode}", path=f"/v1/fleets/{fleet}/mode", body={"mode": mode}
    )
