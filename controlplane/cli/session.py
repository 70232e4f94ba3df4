"""What every command shares: `--url`, `--token-file`, `--timeout`, `--json` and one session.

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

from controlplane.cli import connection, names, near
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
        callback=names.path("--token-file"),
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.1,
        max=connection.MAX_TIMEOUT_S,
        help="To wait for an answer; 10 unless said (STEADYFRAME_TIMEOUT_S).",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]
ReasonText = Annotated[
    str | None,
    typer.Option("--reason", help="Why; kept in the audit log. Required.", show_default=False),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed without a terminal.")]

_QUERY_OPTIONS: Final[dict[str, Any]] = {
    "url": Url,
    "token_file": TokenFile,
    "timeout": Timeout,
    "as_json": AsJson,
}
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
def interruptible() -> Iterator[None]:
    """Ctrl-C is how a command ends, not a fault. Raises: CliError."""
    try:
        yield
    except KeyboardInterrupt:
        raise CliError("interrupted", exit_code=Exit.INTERRUPTED) from None


@contextmanager
def _understanding(url: str) -> Iterator[None]:
    """An answer without what every version of ours has is no fault of the person who asks."""
    try:
        yield
    except KeyError as error:
        raise CliError(
            f"the answer of {url} lacks {error}",
            exit_code=Exit.SERVER_FAULT,
            next_step="check that server and command are of the same version",
        ) from error


def _register(
    app: typer.Typer, name: str, *, options: dict[str, Any]
) -> Callable[[Callable[Concatenate[Session, P], None]], Callable[..., None]]:
    def decorate(function: Callable[Concatenate[Session, P], None]) -> Callable[..., None]:
        @functools.wraps(function)
        def command(context: typer.Context, **arguments: Any) -> None:
            root = context.find_root()
            # Said before the command, as `steadyframe --json status`, it means the same.
            given = {name: arguments.pop(name) or root.params.get(name) for name in options}
            with interruptible():
                session = _opened(given, transport=root.obj)
                try:
                    with (
                        _understanding(session.client.url),
                        near.naming(session.client, fleet=arguments.get("fleet")),
                    ):
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


@contextmanager
def opened(context: typer.Context) -> Iterator[Session]:
    """A session for a command that needs one only sometimes: by what was said before it."""
    root = context.find_root()
    session = _opened({name: root.params.get(name) for name in _QUERY_OPTIONS}, transport=root.obj)
    try:
        with _understanding(session.client.url):
            yield session
    finally:
        session.client.close()


def _opened(given: dict[str, Any], *, transport: Any) -> Session:
    """The session; `transport` is None but in tests, which answer in the control plane's place."""
    client = Client(
        connection.url(given["url"]),
        token=connection.token(given["token_file"]),
        timeout_s=connection.timeout_s(given["timeout"]),
        transport=transport,
    )
    return Session(
        client=client,
        as_json=bool(given["as_json"]),
        reason=names.reason(given.get("reason")),
        is_confirmed=bool(given.get("yes")),
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
