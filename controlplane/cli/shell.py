"""How every command ends: one error path, for wrong command lines as for refusals.

Whatever goes wrong is one sentence, what to do next and a documented exit code; with `--json` one
object on stdout.
"""

import errno
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from typer.core import TyperGroup

from controlplane.cli import output
from controlplane.cli.exits import CliError, Exit

NAME: Final = "steadyframe"
# Typer brings click with it or not, as its version has it; its own errors are click's either way.
_UsageError: Final[type[Exception]] = typer.BadParameter.__mro__[1]
_UNWRITABLE: Final = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_ANYWHERE: Final = ("--url", "--token-file", "--timeout", "--json")


class Shell(TyperGroup):
    """The whole command; ends the process with a documented exit code."""

    def main(  # type: ignore[override]  # the options it has no use for are handed on together
        self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any
    ) -> Any:
        """Run the command line `args`, by default the process's own."""
        given = list(sys.argv[1:] if args is None else args)
        extra["prog_name"] = NAME
        try:
            code = super().main(given, standalone_mode=False, **extra)
        except CliError as error:
            code = _told(error, given)
        except typer.Abort:
            code = _told(CliError("interrupted", exit_code=Exit.INTERRUPTED), given)
        except _UsageError as error:
            code = _told(_usage(error), given)
        except SystemExit:
            # Only where the reader of stdout has gone: `steadyframe ... | head` has had enough.
            code = Exit.OK
        if standalone_mode:
            sys.exit(int(code or Exit.OK))
        return code


def run(app: typer.Typer) -> None:
    """Run the command of this process and exit."""
    _prepare()
    with _writing():
        try:
            app()
        finally:
            sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    """End as it should where the answer cannot be written: a reader has gone, or a disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        # What is left in the buffer must not be tried again at the very end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(int(Exit.OK))
        output.say_wrapped(f"error: cannot write the answer: {error}", rest="  ")
        sys.exit(int(Exit.USAGE))


def _told(error: CliError, given: Sequence[str]) -> Exit:
    output.write_error(error, as_json="--json" in given)
    return error.exit_code


def _usage(error: Any) -> CliError:
    path = error.ctx.command_path if error.ctx else NAME
    if type(error).__name__ == "NoArgsIsHelpError":
        return CliError(
            f"{path}: which command?",
            exit_code=Exit.USAGE,
            detail=error.ctx.get_help(),
            next_step=f"choose one of the commands above: `{path} COMMAND`",
        )
    message = error.format_message()
    if getattr(error, "option_name", None) in _ANYWHERE:
        step = f"write {error.option_name} at the end of the command, or before its first word"
    else:
        step = f"`{path} --help` says what it takes"
    return CliError(message, exit_code=Exit.USAGE, next_step=step)


def _prepare() -> None:
    """Make the streams take any text: a terminal in another encoding, or one that is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 - until the end
        else:
            stream.reconfigure(errors="backslashreplace")
