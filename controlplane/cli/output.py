"""What a command shows: JSON alone on stdout for scripts, narrow tables for a person at 3 a.m.

Everything that is not the answer (effects, questions, errors) goes to stderr.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from controlplane.cli.exits import CliError

if TYPE_CHECKING:
    from rich.console import Console

# What the tables are laid out for where the width is not known: a log, a pipe, a narrow console.
WIDTH: Final = 80
MISSING: Final = "-"

_STYLES: Final = {
    "passing": "green",
    "failing": "bold red",
    "inconclusive": "yellow",
    "unmeasured": "yellow",
    "promoted": "green",
    "rolling_back": "bold red",
    "rolled_back": "red",
    "contained": "red",
    "held": "yellow",
    "progressing": "cyan",
    "baking": "cyan",
    "enforce": "green",
    "observe": "yellow",
}


def console(*, is_error: bool = False) -> "Console":
    """A console on stdout or stderr: no colour where it is no terminal or NO_COLOR is set."""
    from rich.console import Console

    stream = sys.stderr if is_error else sys.stdout
    is_plain = not stream.isatty() or "NO_COLOR" in os.environ
    return Console(
        file=stream,
        no_color=is_plain,
        highlight=False,
        width=None if stream.isatty() else WIDTH,
        soft_wrap=False,
    )


def say(text: str) -> None:
    """One line for the person, on stderr."""
    sys.stderr.write(f"{text}\n")


def write_json(answer: object) -> None:
    """`answer` as the only thing on stdout."""
    sys.stdout.write(json.dumps(answer, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_text(text: str) -> None:
    """`text` on stdout, line ends and all."""
    sys.stdout.write(text)


def write_error(error: CliError, *, as_json: bool) -> None:
    """What went wrong and what to do next; on stdout too where a script reads JSON."""
    if as_json:
        write_json(
            {
                "error": str(error),
                "exit_code": int(error.exit_code),
                "next_step": error.next_step,
            }
        )
    say(f"error: {error}")
    if error.next_step:
        say(f"next: {error.next_step}")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Rows under `columns`, or the sentence `empty` where there is none."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        console().print(empty)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(styled(text) for text in row))
    console().print(table)


def write_fields(title: str, fields: Mapping[str, object]) -> None:
    """A heading and one line for each field, the names in one column."""
    out = console()
    out.print(title, style="bold", markup=False)
    width = max((len(name) for name in fields), default=0)
    for name, value in fields.items():
        out.print(f"  {name:<{width}}  {styled(cell(value))}")


def cell(value: object) -> str:
    """A value as a person reads it."""
    match value:
        case None | "":
            return MISSING
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case Mapping():
            pairs = (f"{name}={cell(part)}" for name, part in sorted(value.items()))
            return ", ".join(pairs) or MISSING
        case list() | tuple():
            return ", ".join(cell(part) for part in value) or MISSING
        case _:
            return str(value)


def styled(text: str) -> str:
    """`text` with the colour of its word, safe as console markup."""
    from rich.markup import escape

    style = _STYLES.get(text)
    return f"[{style}]{escape(text)}[/]" if style else escape(text)


def time_of(value: Any) -> str:
    """An ISO time without what a person does not need: `2026-11-30 19:08:36Z`."""
    if not isinstance(value, str):
        return MISSING
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        return value
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"
