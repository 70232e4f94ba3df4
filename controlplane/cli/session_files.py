"""Reads a file of sessions, CSV or Parquet, into columns and rows of text, never more than fits.

What the cells mean is not known here; `domain.imported` says.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

from controlplane.cli.exits import CliError, Exit
from controlplane.domain.imported import MAX_ROWS

# As the control plane takes it, and as read: a small file may inflate to any size.
MAX_BYTES: Final = 64 << 20
MAX_CELL: Final = 10_000
_GZIP: Final = b"\x1f\x8b"
_PARQUET: Final = b"PAR1"
_BATCH_ROWS: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """Columns, and rows with the line of the file that each began on."""

    columns: Sequence[str]
    lines: Sequence[int]
    rows: Sequence[Sequence[str]]


def read(path: Path) -> SessionTable:
    """The table in `path`: CSV in UTF-8, also as gzip, or Parquet. Raises: CliError."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(_PARQUET))
            file.seek(0)
            if magic == _PARQUET:
                return _parquet(file, path)
            content = _bounded(_inflated(file) if magic.startswith(_GZIP) else file, path)
    except (OSError, EOFError, zlib.error) as error:
        raise CliError(f"cannot read {path}: {error}", exit_code=Exit.USAGE) from None
    return csv_table(content, name=str(path))


def csv_table(content: bytes, *, name: str) -> SessionTable:
    """The table that `content` is as CSV. Raises: CliError naming the line."""
    csv.field_size_limit(MAX_CELL)
    # newline="": a line break in quotes belongs to its cell.
    reader = csv.reader(io.StringIO(_decoded(content, name), newline=""), strict=True)
    lines: list[int] = []
    rows: list[list[str]] = []
    begins = 1
    try:
        columns = next(reader, [])
        begins = reader.line_num + 1
        for row in reader:
            if row:  # a blank line is no row
                lines.append(begins)
                rows.append(row)
            begins = reader.line_num + 1
            if len(rows) > MAX_ROWS:
                raise _too_many(name)
    except csv.Error as error:
        raise CliError(f"{name}, line {begins}: {error}", exit_code=Exit.REFUSED) from None
    if not columns:
        raise CliError(f"{name} is empty: its first line names the columns", exit_code=Exit.REFUSED)
    return SessionTable(columns=columns, lines=lines, rows=rows)


def _inflated(file: IO[bytes]) -> gzip.GzipFile:
    return gzip.GzipFile(fileobj=file)


def _bounded(file: Any, path: Path) -> bytes:
    content: bytes = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise CliError(
            f"{path} holds more than {MAX_BYTES >> 20} MiB",
            exit_code=Exit.REFUSED,
            next_step="import it in parts; a session that is there already is not taken twice",
        )
    return content


def _decoded(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")  # a spreadsheet begins with a byte order mark
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise CliError(
            f"{name}, line {line}: the byte 0x{content[error.start]:02x} is not UTF-8",
            exit_code=Exit.REFUSED,
            next_step="save it as CSV in UTF-8",
        ) from None


def _parquet(file: IO[bytes], path: Path) -> SessionTable:
    try:
        from pyarrow import ArrowException, parquet
    except ModuleNotFoundError:
        raise CliError(
            f"{path} is Parquet, and pyarrow is not installed",
            exit_code=Exit.USAGE,
            next_step="pip install 'steadyframe[parquet]', or give it as CSV",
        ) from None
    try:
        opened = parquet.ParquetFile(file)
        if opened.metadata.num_rows > MAX_ROWS:
            raise _too_many(str(path))
        rows = list(_parquet_rows(opened, path))
        columns = opened.schema_arrow.names
    except ArrowException as error:
        raise CliError(f"{path} is no sound Parquet: {error}", exit_code=Exit.REFUSED) from None
    return SessionTable(columns=columns, lines=range(1, len(rows) + 1), rows=rows)


def _parquet_rows(opened: Any, path: Path) -> Iterator[Sequence[str]]:
    num_characters = 0
    for batch in opened.iter_batches(batch_size=_BATCH_ROWS):
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            cells = [_text(value) for value in row]
            num_characters += sum(len(cell) for cell in cells)
            if num_characters > MAX_BYTES:
                raise CliError(
                    f"{path} holds more than {MAX_BYTES >> 20} MiB", exit_code=Exit.REFUSED
                )
            yield cells


def _text(value: object) -> str:
    """A value as it would stand in CSV; what has no such form is refused as the text it has."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat()
        case float():
            return f"{value:.9f}".rstrip("0").rstrip(".")
        case _:
            return str(value)[:MAX_CELL]


def _too_many(name: str) -> CliError:
    return CliError(
        f"{name} has over {MAX_ROWS} rows",
        exit_code=Exit.REFUSED,
        next_step="import it in parts; a session that is there already is not taken twice",
    )
