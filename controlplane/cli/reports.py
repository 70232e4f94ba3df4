"""`steadyframe report ...`: how the fleets did."""

from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from controlplane.cli import names, output
from controlplane.cli.client import Json
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.fleets import SAMPLE
from controlplane.cli.session import Session, query
from controlplane.contract import vocabulary

app = typer.Typer(help="How the fleets did.")

STDOUT: Final = "-"
_COLUMNS: Final = ("ran", "sessions", "slow", "v. slow", "failed")

OfFleet = Annotated[
    str | None, typer.Option("--fleet", help="Only this fleet.", callback=names.named("--fleet"))
]
Anchor = Annotated[
    str | None,
    typer.Option(
        "--anchor",
        metavar="DATE",
        help="Weeks counted from this day, such as 2026-10-08.",
        callback=names.day("--anchor"),
    ),
]
Since = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="DATE",
        help="First week: the one of this day.",
        callback=names.day("--from"),
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="DATE",
        help="Last week: the one of this day.",
        callback=names.day("--to"),
    ),
]
CsvFile = Annotated[
    str | None, typer.Option("--csv", metavar="FILE", help="Write CSV there; -: to stdout.")
]


@app.callback()
def reports() -> None:
    """How the fleets did."""


@query(app, "weekly")
def weekly(
    session: Session,
    *,
    fleet: OfFleet = None,
    anchor: Anchor = None,
    since: Since = None,
    until: Until = None,
    csv: CsvFile = None,
) -> None:
    """Slow, very slow and failed sessions, week by week, with how sure their rates are."""
    asked = {"fleet": fleet, "anchor": anchor, "from": since, "to": until}
    if csv is not None:
        _write_csv(session.client.text("/v1/reports/weekly.csv", **asked), csv)
        return
    report = session.client.get("/v1/reports/weekly", **asked)
    if session.as_json:
        output.write_json(report)
        return
    if not session.client.rows_of(report, "items"):
        output.write_line("no session has ended yet")
        return
    for name in sorted({total["fleet"] for total in report["items"]}):
        _write_fleet(name, report)
    if any(row["is_mixed"] for row in report["items"]):
        output.say(
            "\nmixed: sessions that changed variant while they ran, by the one they began with;"
            "\nthey speak for no variant alone, so they are counted apart from the others"
        )
    output.say(
        "\nslow: 24.0 fps or less, very slow: 23.5 or less, of the sessions that streamed a second;"
        "\nfailed: of all sessions, so it is not added to them; in brackets: 95 % intervals"
    )


def _write_fleet(name: str, report: Mapping[str, Json]) -> None:
    rows = [row for row in report["items"] if row["fleet"] == name]
    totals = [total for total in report["totals"] if total["fleet"] == name]
    # Rows that differ in nothing else are told apart by it.
    telling = vocabulary.telling([row["flags"] for row in rows])
    is_split = len({row["stack"] for row in rows}) > 1
    mark = f" ({SAMPLE})" if rows[0].get("is_sample") else ""
    output.write_line(f"\nfleet {name}{mark}", style="bold")
    output.write_table(
        ("week", "sessions", "slow", "very slow", "failed"),
        [(total["week"], total["num_sessions"], *_rates(total)) for total in totals],
        empty="  only synthetic sessions",
    )
    output.write_line()
    output.write_table(
        ("week", f"hardware{' stack' if is_split else ''}", *_COLUMNS),
        [
            (
                row["week"],
                f"{row['hardware']} {output.short(row['stack'])}" if is_split else row["hardware"],
                _ran(row, telling),
                row["num_sessions"],
                *_shares(row),
            )
            for row in rows
        ],
        empty="",
    )


def _rates(row: Mapping[str, Json]) -> Sequence[str]:
    """Shares with their intervals; of different totals, so they stand side by side."""
    return [_with_interval(row, name) for name in ("slow", "very_slow", "failure")]


def _shares(row: Mapping[str, Json]) -> Sequence[str]:
    return [_percent(row[f"{name}_rate"]) for name in ("slow", "very_slow", "failure")]


def _with_interval(row: Mapping[str, Json], name: str) -> str:
    interval = row[f"{name}_interval"]
    if interval is None:
        return output.MISSING
    low, high = (f"{100 * bound:.2f}" for bound in interval)
    return f"{_percent(row[f'{name}_rate'])} ({low}-{high})"


def _percent(share: float | None) -> str:
    return output.MISSING if share is None else f"{100 * share:.2f} %"


def _ran(row: Mapping[str, Json], telling: Container[str]) -> str:
    """What sessions ran: the variant alone where one flag tells, to keep the table narrow."""
    flags = {flag: variant for flag, variant in row["flags"].items() if flag in telling}
    ran = next(iter(flags.values())) if len(flags) == 1 else output.cell(flags)
    kinds = ("mixed", "synthetic", "imported")
    told = [kind for kind in kinds if row[f"is_{kind}"]]
    # Which they changed to is known of each session, not of the counts.
    ran = f"from {ran}" if row["is_mixed"] else ran
    return f"{ran} ({', '.join(told)})" if told else ran


def _write_csv(text: str, file: str) -> None:
    if file == STDOUT:
        output.write_text(text)
        return
    try:
        # newline="": the rows end as RFC 4180 has it, whatever the machine.
        with Path(file).open("w", newline="", encoding="utf-8") as out:
            out.write(text)
    except (OSError, ValueError) as error:  # ValueError: NUL in the path
        raise CliError(
            f"cannot write {file}: {error}",
            exit_code=Exit.USAGE,
            next_step="name a file that you may write, or - for stdout",
        ) from None
    output.say(f"written to {file}")
