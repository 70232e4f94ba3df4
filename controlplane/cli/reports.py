"""`steadyframe report ...`: how the fleets did."""

from collections.abc import Mapping

import typer

from controlplane.cli import output
from controlplane.cli.session import Session, query

app = typer.Typer(help="How the fleets did.")


@app.callback()
def reports() -> None:
    """How the fleets did."""


@query(app, "weekly")
def weekly(session: Session) -> None:
    """Sessions, slow rate and failure rate by week, fleet and variants."""
    rows = list(session.client.items("/v1/reports/weekly"))
    if session.as_json:
        output.write_json(rows)
        return
    output.write_table(
        ("week", "fleet", "flags", "sessions", "slow", "very slow", "failed"),
        [
            (
                row["week"],
                row["fleet"],
                "mixed" if row["is_mixed"] else _variants(row["flags"]),
                row["num_sessions"],
                _share(row["num_slow"], row["num_rated"]),
                _share(row["num_very_slow"], row["num_rated"]),
                _share(row["num_failed"], row["num_sessions"]),
            )
            for row in rows
        ],
        empty="no session has ended yet",
    )


def _variants(flags: Mapping[str, str]) -> str:
    """What a session ran: the variant alone where there is one flag, to keep the table narrow."""
    return next(iter(flags.values())) if len(flags) == 1 else output.cell(flags)


def _share(number: int, total: int) -> str:
    """A share of `total`; shares of different totals stand side by side and are never added."""
    return f"{100 * number / total:.2f} %" if total else output.MISSING
