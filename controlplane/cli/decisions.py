"""`steadyframe decision ...`: what was decided is judged again and compared."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

import typer

from controlplane.cli import names, output
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session, query

app = typer.Typer(help="See that what was decided can be recomputed from what was stored.")

ID_PATTERN: Final = r"[A-Za-z0-9_-]{1,64}"
# Of a difference, in a table: enough to see what it is.
_MOST_SHOWN: Final = 60


@query(app, "verify")
def verify(
    session: Session,
    decision: Annotated[
        str | None,
        typer.Argument(
            metavar="[DECISION]",
            help="Its id, as `/v1/canaries/CANARY/decisions` lists them.",
            callback=names.named("DECISION", ID_PATTERN),
            show_default=False,
        ),
    ] = None,
    *,
    canary: Annotated[
        str | None,
        typer.Option(
            "--canary",
            help="The newest decision on this canary.",
            callback=names.canary("--canary"),
            show_default=False,
        ),
    ] = None,
    is_all: Annotated[bool, typer.Option("--all", help="Every decision on the canary.")] = False,
) -> None:
    """Judge stored decisions again: ends with 14 if one differs, 15 if one cannot be recomputed."""
    ids = _asked(session, decision, canary=canary, is_all=is_all)
    found = [session.client.post(f"/v1/decisions/{one}/verify", {}) for one in ids]
    if session.as_json:
        output.write_json(found)
    else:
        for one in found:
            _write(one)
    results = {one["result"] for one in found}
    if results - {"equal", "not_recomputable"}:
        raise typer.Exit(int(Exit.DIFFERS))
    if "not_recomputable" in results:
        raise typer.Exit(int(Exit.UNVERIFIED))


def _asked(
    session: Session, decision: str | None, *, canary: str | None, is_all: bool
) -> Sequence[str]:
    """Ids of the decisions that are asked about. Raises: CliError: not exactly one is said."""
    if (decision is None) == (canary is None):
        raise CliError("say either the id of a decision or --canary CANARY", exit_code=Exit.USAGE)
    if decision is not None:
        if is_all:
            raise CliError("--all goes with --canary, not with an id", exit_code=Exit.USAGE)
        return (decision,)
    ids = []
    for one in session.client.items(f"/v1/canaries/{canary}/decisions"):
        ids.append(str(one["id"]))
        if not is_all:
            break
    if not ids:
        raise CliError(
            f"nothing has been decided on {canary} yet",
            exit_code=Exit.CONFLICT,
            next_step=f"`steadyframe canary explain {canary}` says what it waits for",
        )
    return ids


def _write(found: Mapping[str, Json]) -> None:
    at = output.time_of(found["at"])
    told = f"{found['decision']} on {found['canary']}, {at}: {found['said']}"
    output.write_item(told, mark="- ")  # whose further lines are set in: none is forged
    if found["differences"]:
        output.write_table(
            ("where", "recorded", "recomputed"),
            [
                (one["where"], _short(one["recorded"]), _short(one["recomputed"]))
                for one in found["differences"]
            ],
            empty="",
        )


def _short(value: Json) -> str:
    # A float in full: what differs may be its last digit.
    text = repr(value) if isinstance(value, float) else output.cell(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
