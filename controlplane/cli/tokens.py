"""`steadyframe token ...`: who may ask."""

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from controlplane.cli import acting, names, output
from controlplane.cli.acting import Change
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session, action

app = typer.Typer(help="Make tokens for people and workers.")


class Role(StrEnum):
    """What a token may do."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"
    WORKER = "worker"


@app.callback()
def tokens() -> None:
    """Make tokens for people and workers."""


@action(app, "create")
def create(
    session: Session,
    role: Annotated[Role, typer.Argument(help="What it may do.")],
    *,
    fleet: Annotated[
        str | None,
        typer.Option("--fleet", help="Only in this fleet.", callback=names.named("--fleet")),
    ] = None,
    worker: Annotated[
        str | None,
        typer.Option("--worker", help="For this worker.", callback=names.named("--worker")),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="New file for it, mode 0600.", callback=names.path("--out")),
    ] = None,
) -> None:
    """Make a token. It is shown once and stored only as a hash."""
    body = {"role": role.value, "fleet": fleet, "worker": worker}
    change = Change(
        title=f"make a token for role {role}",
        path="/v1/tokens",
        body={key: value for key, value in body.items() if value is not None},
    )
    answer = acting.make(session, change)
    if out:
        write_secret(out, answer["token"])
        answer = {**answer, "token": None, "file": str(out)}
    if session.as_json:
        output.write_json(answer)
    else:
        output.write_whole(answer["token"] or f"written to {out}")


def write_secret(path: Path, text: str) -> None:
    """Write `text` to a new file that only its owner can read. Raises: CliError if it exists."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CliError(
            f"cannot write {path}: {error}",
            exit_code=Exit.USAGE,
            next_step="name a new file in a folder that is there",
        ) from None
    with os.fdopen(descriptor, "w") as file:
        file.write(text + "\n")
