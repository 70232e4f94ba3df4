"""The command `steadyframe`: puts the commands together; each group has a module of its own."""

import sys
from typing import Annotated

import typer

from controlplane.cli import (
    canaries,
    decisions,
    fleets,
    importing,
    policies,
    qualifications,
    reports,
    running,
    shell,
    status,
    tokens,
    workers,
)
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import AsJson, Timeout, TokenFile, Url

app = typer.Typer(
    cls=shell.Shell,
    help="Operations control plane for fleets that serve real-time generated video.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit codes: docs/exit-codes.md. Every change takes --reason and says what it will do.",
)
running.register(app)
status.register(app)
app.add_typer(fleets.app, name="fleet", no_args_is_help=True)
app.add_typer(workers.app, name="worker", no_args_is_help=True)
app.add_typer(canaries.app, name="canary", no_args_is_help=True)
app.add_typer(decisions.app, name="decision", no_args_is_help=True)
app.add_typer(qualifications.app, name="qualification", no_args_is_help=True)
app.add_typer(policies.app, name="policy", no_args_is_help=True)
app.add_typer(tokens.app, name="token", no_args_is_help=True)
app.add_typer(importing.app, name="import", no_args_is_help=True)
app.add_typer(reports.app, name="report", no_args_is_help=True)
workers.register_pins(app)
fleets.register_line(app)


def _print_version(is_wanted: bool) -> None:  # noqa: FBT001 - the form typer calls back with
    if is_wanted:
        from importlib.metadata import version

        sys.stdout.write(f"steadyframe {version('steadyframe')}\n")
        raise typer.Exit(int(Exit.OK))


@app.callback()
def root(
    context: typer.Context,
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
    url: Url = None,
    token_file: TokenFile = None,
    timeout: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Operations control plane for fleets that serve real-time generated video."""
    del as_json  # every command takes it
    is_local = context.invoked_subcommand in running.LOCAL
    if is_local and (url or token_file or timeout):
        raise CliError(
            f"{context.invoked_subcommand} asks no control plane: it takes no --url, --token-file"
            " or --timeout",
            exit_code=Exit.USAGE,
        )


def main() -> None:
    """Run the command line and exit with its documented code."""
    shell.run(app)


if __name__ == "__main__":
    main()
