"""`steadyframe serve` and `demo`: the two commands that start processes."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from controlplane.cli import names
from controlplane.cli.exits import CliError, Exit
from controlplane.cli.session import AsJson, interruptible

Host = Annotated[
    str | None, typer.Option("--host", help="Address to listen on.", callback=names.host)
]
Port = Annotated[
    int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0: any.")
]
StateDir = Annotated[
    Path | None,
    typer.Option(
        "--state-dir",
        help="Folder of the database and the admin token.",
        callback=names.path("--state-dir"),
    ),
]
Keep = Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")]
SummaryFile = Annotated[
    Path | None,
    typer.Option(
        "--summary",
        help="Write the summary there, as JSON.",
        callback=names.path("--summary"),
    ),
]

LOCAL: Final = ("serve", "demo")


def register(root: typer.Typer) -> None:
    """Put the commands on the top level."""
    root.command("serve")(serve)
    root.command("demo")(demo)


def serve(*, host: Host = None, port: Port = None, state_dir: StateDir = None) -> None:
    """Run the control plane until SIGTERM; every setting is also a STEADYFRAME_ variable."""
    with interruptible():
        given = {"host": host, "port": port, "state_dir": state_dir}
        settings = _settings({name: value for name, value in given.items() if value is not None})
        from controlplane import app
        from controlplane.domain.errors import ConflictError

        try:
            app.serve(settings)
        except ConflictError as error:
            raise CliError(str(error), exit_code=Exit.CONFLICT) from None
        except OSError as error:
            raise CliError(
                f"cannot listen on {settings.host} port {settings.port}: {error}",
                exit_code=Exit.REFUSED,
                next_step="choose another: --port PORT, or 0 for any free one",
            ) from None


def demo(
    context: typer.Context,
    *,
    keep: Keep = False,
    as_json: AsJson = False,
    summary: SummaryFile = None,
) -> None:
    """Show the main job with real workers on this machine, then end; under 3 minutes."""
    with interruptible():
        _need("worker", "torch")
        from controlplane.cli.demo import command

        is_script = as_json or bool(context.find_root().params.get("as_json"))
        exit_code = command.play(is_kept=keep, as_json=is_script, summary_file=summary)
    raise typer.Exit(int(exit_code))


def _settings(given: dict[str, Any]) -> Any:
    """The settings; a wrong variable is named with what is allowed. Raises: CliError."""
    _need("server", "pydantic_settings")
    from pydantic import ValidationError

    from controlplane import settings

    try:
        return settings.Settings(**given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}"
            for each in error.errors(include_url=False)
        )
        raise CliError(
            f"a setting is wrong: {problems}",
            exit_code=Exit.USAGE,
            next_step="docs/settings.md lists every setting",
        ) from None


def _need(extra: str, module: str) -> None:
    """Raise CliError if the extra that brings `module` is not installed."""
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise CliError(
            f"this command needs more than the base installation: {module} is missing",
            exit_code=Exit.USAGE,
            next_step=f"pip install 'steadyframe[{extra}]', or in a checkout: make setup",
        )
