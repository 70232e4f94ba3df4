"""What every command shares: the options `--url`, `--token-file`, `--json` and one error path.

`query` registers a command that only reads, `action` one that changes something. Both give the
function a `Session` in place of its first parameter.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec, get_type_hints

import typer

from controlplane.cli import connection, output
from controlplane.cli.client import Client
from controlplane.cli.exits import CliError, Exit

P = ParamSpec("P")

Url = Annotated[
    str | None,
    typer.Option(
        "--url", help="Address of the control plane (STEADYFRAME_URL).", show_default=False
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        help="File with the token, mode 0600 (STEADYFRAME_TOKEN holds the token itself).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
ReasonText = Annotated[
    str | None,
    typer.Option("--reason", help="Why; kept in the audit log. Required.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]

_QUERY_OPTIONS: Final[dict[str, Any]] = {"url": Url, "token_file": TokenFile, "as_json": AsJson}
_ACTION_OPTIONS: Final[dict[str, Any]] = {"reason": ReasonText, "yes": Yes, **_QUERY_OPTIONS}
_DEFAULTS: Final[dict[str, object]] = {"yes": False, "as_json": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One invocation: a client, and how to answer."""

    client: Client = field(repr=False)
    as_json: bool
    reason: str | None = None
    is_confirmed: bool = False


def query(
    app: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Register a command that only reads."""
    return _register(app, name, options=_QUERY_OPTIONS)


def action(
    app: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    """Register a command that changes something: it takes `--reason` and `--yes` too."""
    return _register(app, name, options=_ACTION_OPTIONS)


@contextmanager
def reporting_errors(*, as_json: bool) -> Iterator[None]:
    """Turn a `CliError` into its sentence and its exit code: no traceback for what is expected."""
    try:
        yield
    except CliError as error:
        output.write_error(error, as_json=as_json)
        raise typer.Exit(int(error.exit_code)) from None
    except KeyboardInterrupt:
        output.say("interrupted")
        raise typer.Exit(int(Exit.INTERRUPTED)) from None


def _register(
    app: typer.Typer, name: str, *, options: dict[str, Any]
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(context: typer.Context, **arguments: Any) -> None:
            given = {option: arguments.pop(option) for option in options}
            with reporting_errors(as_json=given["as_json"]):
                session = _opened(given, transport=context.find_root().obj)
                try:
                    function(session, **arguments)  # type: ignore[call-arg]  # built from its signature
                finally:
                    session.client.close()

        command.__signature__ = _signature(function, options)  # type: ignore[attr-defined]  # read by typer
        hints = get_type_hints(function, include_extras=True)
        command.__annotations__ = {
            **hints,
            **options,
            "context": typer.Context,
            "return": None,
        }
        app.command(name)(command)
        return command

    return decorate


def _opened(given: dict[str, Any], *, transport: Any) -> Session:
    """The session; `transport` is None but in tests, which answer in the control plane's place."""
    client = Client(
        connection.url(given["url"]),
        token=connection.token(given["token_file"]),
        transport=transport,
    )
    return Session(
        client=client,
        as_json=given["as_json"],
        reason=given.get("reason"),
        is_confirmed=given.get("yes", False),
    )


def _signature(function: Callable[..., None], options: dict[str, Any]) -> inspect.Signature:
    """The function's own parameters without the session, then the shared options."""
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    shared = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_DEFAULTS.get(name),
            annotation=annotation,
        )
        for name, annotation in options.items()
    ]
    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )
    return inspect.Signature([context, *keyword_only, *shared])
