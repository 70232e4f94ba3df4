"""`steadyframe import ...`: sessions of the past, for reports."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from controlplane.cli import acting, names, output, sample, session_files
from controlplane.cli.acting import Change
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import Session, action
from controlplane.cli.session_files import SessionTable
from controlplane.domain import imported
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.imported import BadRowsError

app = typer.Typer(help="Take in sessions of the past, for reports only.")

PATH: Final = "/v1/imports/sessions"
# Fifty thousand rows take the control plane some seconds, and it may have other things to do.
TIMEOUT_S: Final = 300.0

File = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="CSV in UTF-8, also gzip, or Parquet.",
        callback=names.path("FILE"),
    ),
]
IntoFleet = Annotated[
    str,
    typer.Option("--fleet", help="The fleet that they were of.", callback=names.named("--fleet")),
]
IntoSample = Annotated[
    str,
    typer.Option(
        "--fleet", help="Name of the fleet of sample data.", callback=names.named("--fleet")
    ),
]


@action(app, "sessions")
def sessions(session: Session, file: File, *, fleet: IntoFleet) -> None:
    """Import every session of FILE, or none: bad rows are listed. docs/importing.md."""
    with _shown(f"reading {file}"):
        table = session_files.read(file)
        _check(session, table, now=_now())
    title = f"import {len(table.rows)} sessions of {file} into fleet {fleet}"
    _make(session, table, fleet=fleet, title=title, is_sample=False)


@action(app, "sample")
def sample_data(session: Session, *, fleet: IntoSample = sample.FLEET) -> None:
    """Import seven weeks of made-up sessions into a fleet that is marked as a sample."""
    table = sample.table()
    title = f"import {len(table.rows)} made-up sessions into the sample fleet {fleet}"
    _make(session, table, fleet=fleet, title=title, is_sample=True)


def body(table: SessionTable, *, fleet: str, is_sample: bool) -> dict[str, Json]:
    """What is sent of `table`, but the reason."""
    return {
        "fleet": fleet,
        "is_sample": is_sample,
        "columns": list(table.columns),
        "lines": list(table.lines),
        "rows": [list(row) for row in table.rows],
    }


def _make(
    session: Session, table: SessionTable, *, fleet: str, title: str, is_sample: bool
) -> None:
    content = body(table, fleet=fleet, is_sample=is_sample)
    change = Change(title=title, path=PATH, body=content, timeout_s=TIMEOUT_S)
    acting.make_and_tell(session, change)


def _check(session: Session, table: SessionTable, *, now: datetime) -> None:
    """Name every bad row before anything is sent. Raises: CliError."""
    known = {
        flag["name"]: [variant["name"] for variant in flag["variants"]]
        for flag in session.client.items("/v1/flags")
    }
    rows = zip(table.lines, table.rows, strict=True)
    try:
        imported.parse(table.columns, rows, known=known, now=now)
    except (InvalidValueError, BadRowsError) as error:
        raise CliError(
            str(error), exit_code=Exit.REFUSED, next_step="docs/importing.md has the columns"
        ) from None


def _now() -> datetime:
    from controlplane.clock import SystemClock

    return SystemClock().now()


@contextmanager
def _shown(what: str) -> Iterator[None]:
    """Say on a terminal that something goes on."""
    if not sys.stderr.isatty():
        yield
        return
    with output.console(is_error=True).status(what):
        yield
