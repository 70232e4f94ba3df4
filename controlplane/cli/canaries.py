"""`steadyframe canary ...`: start, watch, steer."""

import textwrap
from collections.abc import Mapping
from typing import Annotated, Final

import typer

from controlplane.cli import acting, explaining, names, output, watching
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.fleets import FleetName
from controlplane.cli.session import Session, action, query

# Four lines of what is left of 80 columns beside the names.
MAX_REASON: Final = 70

app = typer.Typer(
    help="Carry a variant of a flag, or a new stack, from its first session to promotion or back."
)

CanaryName = Annotated[
    str,
    typer.Argument(
        metavar="CANARY", help="Such as fused-allreduce-17.", callback=names.canary("CANARY")
    ),
]
PolicyName = Annotated[
    str, typer.Option("--policy", help="What it must show.", callback=names.named("--policy"))
]
OptionalFlag = Annotated[
    str | None,
    typer.Argument(metavar="FLAG", help="Name of the flag.", callback=names.named("FLAG")),
]
OptionalVariant = Annotated[
    str | None,
    typer.Argument(metavar="VARIANT", help="Value of the flag.", callback=names.named("VARIANT")),
]
StackDigest = Annotated[
    str | None,
    typer.Option(
        "--stack",
        metavar="DIGEST",
        help="Compare this stack of the fleet with the one most workers have, instead of a flag.",
        callback=names.named("--stack"),
    ),
]
Hardware = Annotated[
    str | None,
    typer.Option(
        "--hardware",
        help="Needed if the fleet has several.",
        callback=names.named("--hardware"),
    ),
]


@query(app, "list")
def list_canaries(
    session: Session,
    *,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", help="Only of this fleet.", callback=names.named("--fleet")),
    ] = None,
) -> None:
    """Canaries, newest first, with phase and reason."""
    canaries = list(session.client.items("/v1/canaries", fleet=fleet))
    if session.as_json:
        output.write_json(canaries)
        return
    output.write_table(
        ("canary", "fleet", "variant", "phase", "reason"),
        [
            (
                each["name"],
                each["fleet"],
                watching.candidate(each),
                each["phase"],
                _short(each["reason"]),
            )
            for each in canaries
        ],
        empty="no canary yet: `steadyframe canary start --help`",
    )


@query(app, "show")
def show(session: Session, canary: CanaryName) -> None:
    """One canary: phase and reason, the gates of the last decision, the workers it exposed."""
    found = session.client.get(f"/v1/canaries/{canary}")
    if session.as_json:
        output.write_json(found)
        return
    body = found.get("canary", found)
    output.write_fields(
        f"canary {body['name']}",
        {
            "phase": body["phase"],
            "reason": body["reason"],
            "change": watching.change(body),
            "fleet": body["fleet"],
            "step": f"{body.get('step', 0) + 1} of {len(found.get('steps', [])) or '?'}",
            "since": output.time_of(body.get("phase_since")),
        },
    )
    _write_gates(found.get("gates", []))
    _write_exposed(found.get("workers", found.get("exposed", [])))


@query(app, "explain")
def explain(session: Session, canary: CanaryName) -> None:
    """Why a canary stands where it stands, in sentences with their numbers."""
    found = session.client.get(f"/v1/canaries/{canary}/explanation")
    if session.as_json:
        output.write_json(found)
        return
    explaining.write(found)


@query(app, "watch")
def watch(
    session: Session,
    canary: CanaryName,
    *,
    patience: Annotated[
        float, typer.Option("--patience", min=0, help="Seconds to wait for a server that is away.")
    ] = 300,
) -> None:
    """Look until the canary ends or is held; the exit code says how."""
    exit_code = watching.watch(
        session.client, canary, patience_s=patience, is_silent=session.as_json
    )
    if session.as_json:
        output.write_json(session.client.get(f"/v1/canaries/{canary}"))
    raise typer.Exit(int(exit_code))


@action(app, "start")
def start(  # noqa: PLR0913 - one option each
    session: Session,
    fleet: FleetName,
    flag: OptionalFlag = None,
    variant: OptionalVariant = None,
    *,
    policy: PolicyName,
    stack: StackDigest = None,
    hardware: Hardware = None,
) -> None:
    """Begin a canary of VARIANT under a policy, or of a new stack under the same variants."""
    told = {"flag": flag, "variant": variant, "stack": stack, "hardware": hardware}
    given = {name: value for name, value in told.items() if value is not None}
    if {"flag", "variant", "stack"} & set(given) not in ({"flag", "variant"}, {"stack"}):
        message = "what is to be tried is FLAG and VARIANT, or --stack DIGEST alone"
        raise CliError(message, exit_code=Exit.USAGE)
    body: dict[str, Json] = {"fleet": fleet, "policy": policy, **given}
    what = f"{flag}={variant}" if stack is None else f"stack {stack}"
    title = f"start a canary of {what} in fleet {fleet} under policy {policy}"
    answer = acting.make(session, Change(title=title, path="/v1/canaries", body=body))
    if session.as_json:
        output.write_json(answer)
        return
    output.say_wrapped(_told(answer), rest="  ")


@action(app, "abort")
def abort(session: Session, canary: CanaryName) -> None:
    """End a canary and send its workers back; beats every other request."""
    acting.make_and_tell(session, _request(canary, "abort"))


@action(app, "promote")
def promote(session: Session, canary: CanaryName) -> None:
    """Shorten the bake of a canary whose every gate passes; never overrules a gate."""
    acting.make_and_tell(session, _request(canary, "promote"))


@action(app, "pause")
def pause(session: Session, canary: CanaryName) -> None:
    """Hold a canary: its workers go back, its evidence and bake are kept."""
    acting.make_and_tell(session, _request(canary, "pause"))


@action(app, "resume")
def resume(session: Session, canary: CanaryName) -> None:
    """Go on with a canary that is held."""
    acting.make_and_tell(session, _request(canary, "resume"))


@action(app, "report-quality")
def report_quality(
    session: Session,
    canary: CanaryName,
    *,
    measure: Annotated[
        str,
        typer.Option(
            "--measure", help="As its policy names it.", callback=names.named("--measure")
        ),
    ],
    value: Annotated[
        float,
        typer.Option("--value", help="What was measured.", callback=names.quality),
    ],
    samples: Annotated[
        int, typer.Option("--samples", min=1, help="Pictures or clips that were measured.")
    ],
) -> None:
    """Report what was measured of the picture; the gate quality judges the newest report."""
    title = f"report {measure} {value} over {samples} samples for canary {canary}"
    body: dict[str, Json] = {"measure": measure, "value": value, "num_samples": samples}
    acting.make_and_tell(
        session, Change(title=title, path=f"/v1/canaries/{canary}/quality", body=body)
    )


def _short(reason: Json) -> str:
    """The beginning: a list is to find one in, and `canary show` has all of it."""
    return textwrap.shorten(output.cell(reason), MAX_REASON, placeholder=" ...")


def _told(answer: Mapping[str, Json]) -> str:
    """That it begins, or whom it waits for and at which place."""
    body = answer.get("canary", answer)
    name, ahead = body.get("name"), body.get("ahead") or []
    watch = f"watch it with `steadyframe canary watch {name}`"
    if not ahead:
        return f"started {name}; {watch}"
    return (
        f"{name} waits for {', '.join(str(each) for each in ahead)}: it is number"
        f" {len(ahead) + 1} in the queue of fleet {body.get('fleet')}; {watch}"
    )


def _request(canary: str, kind: str) -> Change:
    return Change(
        title=f"{kind} canary {canary}",
        path=f"/v1/canaries/{canary}/requests",
        body={"kind": kind},
    )


def _write_gates(gates: list[Mapping[str, Json]]) -> None:
    output.write_line("\ngates", style="bold")
    output.write_table(
        ("gate", "verdict", "why"),
        [(gate["gate"], gate["verdict"], gate.get("reason")) for gate in gates],
        empty="  none yet",
    )


def _write_exposed(workers: list[Mapping[str, Json]]) -> None:
    output.write_line("\nexposed workers", style="bold")
    output.write_table(
        ("worker", "exposed", "contained", "verified"),
        [
            (
                worker.get("worker", worker.get("name")),
                output.time_of(worker.get("exposed_at")),
                output.time_of(worker.get("contained_at")),
                output.time_of(worker.get("verified_at")),
            )
            for worker in workers
        ],
        empty="  none yet",
    )
