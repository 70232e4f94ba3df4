"""What a command shows: JSON alone on stdout for scripts, narrow tables for a person at 3 a.m.

Everything that is not the answer (effects, questions, errors) goes to stderr. Whatever the text is
and whoever wrote it, no control character of it reaches the terminal.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from controlplane.cli import plain
from controlplane.cli.exits import CliError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

# What the tables are laid out for where the width is not known: a log, a pipe, a narrow console.
WIDTH: Final = 80
# Prose in longer lines is hard to read, however wide the terminal is.
MAX_WIDTH: Final = 100
MISSING: Final = "-"
# Columns between two columns of a table.
_GAP: Final = 3
# As much of a digest as tells two stacks apart.
_SHORT: Final = 8
MIB: Final = 1024 * 1024

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


def width_of(stream: TextIO) -> int:
    """Columns for prose on `stream`."""
    if not stream.isatty():
        return WIDTH
    return max(20, min(MAX_WIDTH, shutil.get_terminal_size(fallback=(WIDTH, 24)).columns))


def say(text: str) -> None:
    """Lines for the person, on stderr."""
    sys.stderr.write(f"{plain.lines(text)}\n")


def say_wrapped(text: str, *, first: str = "", rest: str = "") -> None:
    """A sentence for the person, on stderr, within the terminal's width."""
    width = width_of(sys.stderr)
    sys.stderr.write(plain.wrapped(text, width=width, first=first, rest=rest) + "\n")


def write_line(text: str = "", *, style: str | None = None) -> None:
    """A line of the answer, on stdout; it goes over several where the terminal is narrow.

    A line end at its beginning is an empty line before it; any other is shown as one.
    """
    from rich.text import Text

    if text.startswith("\n"):
        console().print()
    console().print(Text(plain.shown(text.removeprefix("\n")), style=style or ""))


def write_whole(text: str) -> None:
    """A line of the answer, on stdout, whatever its length: something to copy, or for a log."""
    sys.stdout.write(f"{plain.shown(text)}\n")


def write_item(text: str, *, mark: str = "  - ") -> None:
    """One of several sentences of the answer, on stdout."""
    width = width_of(sys.stdout)
    sys.stdout.write(plain.wrapped(text, width=width, first=mark, rest=" " * len(mark)) + "\n")


def write_json(answer: object) -> None:
    """`answer` as the only thing on stdout."""
    text = json.dumps(answer, indent=2, sort_keys=True, ensure_ascii=False)
    sys.stdout.write(plain.json_text(text) + "\n")


def write_text(text: str) -> None:
    """`text` on stdout with the line ends that it has."""
    sys.stdout.write("\r\n".join(plain.lines(line) for line in text.split("\r\n")))


def write_error(error: CliError, *, as_json: bool) -> None:
    """What went wrong and what to do next; on stdout too where a script reads JSON."""
    message = plain.shortened(str(error))
    if as_json:
        told = {"error": message, "code": int(error.exit_code), "next_step": error.next_step}
        write_json({**error.facts, **({"detail": error.detail} if error.detail else {}), **told})
    say_wrapped(message, first="error: ", rest="  ")
    if error.detail:
        say(error.detail)
    say_wrapped(error.next_step, first="next: ", rest="  ")


def write_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Rows under `columns`, or the sentence `empty` where there is none."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    cells = [[cell(value) for value in row] for row in rows]
    if not cells:
        write_line(empty)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    out = console()
    for column, width in zip(columns, _widths([columns, *cells], most=out.width), strict=True):
        table.add_column(column, overflow="fold", width=width)
    for row in cells:
        table.add_row(*(styled(text) for text in row))
    out.print(table)


def _widths(rows: Sequence[Sequence[str]], *, most: int) -> Sequence[int | None]:
    """A width for each column, so that `rows` fit into `most` without a word in two lines.

    None, which leaves it to the table, where they fit as they are or not even word by word.
    """
    from rich.cells import cell_len

    columns = list(zip(*rows, strict=True))
    whole = [max(map(cell_len, column)) for column in columns]
    widths = [max(cell_len(word) for text in column for word in text.split()) for column in columns]
    room = most - _GAP * (len(columns) - 1)
    if sum(whole) <= room or sum(widths) > room:
        return [None] * len(columns)
    # The narrow first: a number in two lines is read wrongly, a sentence is not.
    wanting = sorted(range(len(columns)), key=lambda column: whole[column] - widths[column])
    for column in wanting:
        spare = room - sum(widths)
        widths[column] += min(whole[column] - widths[column], spare)
    return widths


def write_fields(title: str, fields: Mapping[str, object]) -> None:
    """A heading and one line for each field, names in one column and values in another."""
    from rich.table import Table

    write_line(title, style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(f"  {name}", styled(cell(value)))
    console().print(table)


def cell(value: object) -> str:
    """A value as a person reads it, on one line."""
    return plain.shown(_worded(value))


def short(digest: object) -> str:
    """As much of a digest as tells two of them apart; `show` and --json have all of it."""
    return cell(digest)[:_SHORT]


def unbroken(name: object) -> str:
    """A name for the first column of a table, where a line could begin with a part of it.

    None of ours has a space; at one of another server's, a line is not broken to look like ours.
    """
    return cell(name).replace(" ", "\N{OPEN BOX}")


def size(num_bytes: object) -> str:
    """A number of bytes in MiB."""
    return f"{num_bytes / MIB:.1f} MiB" if isinstance(num_bytes, int | float) else MISSING


def _worded(value: object) -> str:
    match value:
        case None | "":
            return MISSING
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.2f}"
        case Mapping():
            pairs = (f"{name}={_worded(part)}" for name, part in sorted(value.items()))
            return ", ".join(pairs) or MISSING
        case list() | tuple():
            return ", ".join(_worded(part) for part in value) or MISSING
        case _:
            return str(value)


def styled(text: str) -> "Text":
    """`text` in the colour of its word; never read as markup."""
    from rich.text import Text

    return Text(plain.shown(text), style=_STYLES.get(text, ""))


def time_of(value: Any) -> str:
    """An ISO time without what a person does not need: `2026-11-30 19:08:36Z`."""
    at = moment(value)
    if at is None:
        return value if isinstance(value, str) else MISSING
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z"


def moment(value: Any) -> datetime | None:
    """An ISO time with its zone, or None where `value` is none."""
    try:
        at = datetime.fromisoformat(value)
    except (ValueError, TypeError):
        return None
    return at if at.tzinfo else None
