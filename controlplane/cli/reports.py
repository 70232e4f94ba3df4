"""`steadyframe report ...`: how the fleets did."""

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
    columns = sorted({column for row in rows for column in row})
    output.write_table(
        columns,
        [[row.get(column) for column in columns] for row in rows],
        empty="no session has ended yet",
    )
