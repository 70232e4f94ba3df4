"""`steadyframe import`: what is read of a file, and what a hostile one does to us: nothing."""

import csv
import gzip
import io
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from controlplane.cli import sample, session_files
from controlplane.cli.exits import CliError, Exit
from controlplane.domain import imported
from tests.cli.fake import FakeControlPlane, run
from tests.domain.test_imported import GOOD, KNOWN

FLAG = {"name": "fused_allreduce", "variants": [{"name": "nccl"}, {"name": "fused_steady"}]}
WHY = ("--reason", "a test", "--yes")


def plane() -> FakeControlPlane:
    return FakeControlPlane(
        {("GET", "/v1/flags"): {"items": [FLAG]}, ("POST", "/v1/imports/sessions"): {}}
    )


def as_csv(*rows: dict[str, str]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(GOOD)
    writer.writerows({**GOOD, "session": f"s-{n}", **row}.values() for n, row in enumerate(rows))
    return text.getvalue().encode()


def put(folder: Path, content: bytes) -> Path:
    file = folder / "sessions"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("form", ["plain", "byte order mark", "gzip", "blank lines"])
def test_a_csv_file_is_sent_whole(tmp_path: Path, form: str) -> None:
    content = as_csv({}, {"outcome": "failed"})
    match form:
        case "byte order mark":
            content = b"\xef\xbb\xbf" + content
        case "gzip":
            content = gzip.compress(content)
        case "blank lines":
            content = content.replace(b"\r\n", b"\r\n\r\n")
        case _:
            assert form == "plain"
    there = plane()
    result = run(there, "import", "sessions", str(put(tmp_path, content)), "--fleet", "live", *WHY)
    assert result.exit_code == Exit.OK, result.stderr
    (call,) = there.made
    assert call.body["columns"] == list(GOOD)
    assert [row[0] for row in call.body["rows"]] == ["s-0", "s-1"]
    assert call.body["lines"] == ([2, 3] if form != "blank lines" else [3, 5])


def test_a_parquet_file_is_sent_as_the_same_text(tmp_path: Path) -> None:
    """Times with a zone and numbers, as a warehouse exports them."""
    typed: dict[str, Any] = {name: [value] for name, value in GOOD.items()}
    typed["started_at"] = [datetime(2026, 10, 8, 1, tzinfo=UTC)]
    typed["streamed_s"], typed["num_frames"] = [10.0], [244]
    file = tmp_path / "sessions.parquet"
    parquet.write_table(pa.table(typed), file)
    there = plane()
    result = run(there, "import", "sessions", str(file), "--fleet", "live", *WHY)
    assert result.exit_code == Exit.OK, result.stderr
    row = dict(zip(GOOD, there.made[0].body["rows"][0], strict=True))
    assert (row["started_at"], row["streamed_s"]) == ("2026-10-08T01:00:00+00:00", "10")


def test_without_pyarrow_parquet_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(CliError) as refused:
        session_files.read(put(tmp_path, b"PAR1PAR1"))
    assert "steadyframe[parquet]" in refused.value.next_step


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "is empty"),
        (as_csv({}).decode().encode("utf-16"), "line 1: the byte 0xff is not UTF-8"),
        (as_csv({}) + "s-2,caf\u00e9".encode("latin-1"), "line 3: the byte 0xe9 is not UTF-8"),
        (as_csv({}) + b'"' + b"x" * 20_000, "field larger than field limit"),
        (as_csv({}) + b'"never closed', "line 3"),
        (as_csv({"outcome": "\x00"}), "line 2: outcome: '\\x00' is not allowed"),
        (as_csv({"outcome": "=1+1"}, {"worker": "@x"}), "line 3: worker: '@x' is not allowed"),
        (as_csv({"session": "a\nb"}, {"outcome": "?"}), "line 4: outcome"),
        (as_csv({}) + b"one,cell\r\n", "line 3: cells: 2 is not allowed; allowed: 10"),
        (b"\x1f\x8bnot gzip", "cannot read"),
        (b"PAR1 not parquet PAR1", "no sound Parquet"),
    ],
)
def test_a_hostile_file_is_refused_in_words(tmp_path: Path, content: bytes, told: str) -> None:
    there = plane()
    result = run(there, "import", "sessions", str(put(tmp_path, content)), "--fleet", "live", *WHY)
    assert result.exit_code in (Exit.REFUSED, Exit.USAGE)
    assert told in result.stderr
    assert "\x00" not in result.stderr
    assert there.made == []


def test_a_file_that_inflates_without_end_is_given_up(tmp_path: Path) -> None:
    """A gigabyte of one field weighs a megabyte as gzip; no more than the bound is ever held."""
    file = tmp_path / "bomb"
    with gzip.open(file, "wb", compresslevel=1) as out:
        for _ in range(session_files.MAX_BYTES >> 20):
            out.write(b"x" * (1 << 20))
        out.write(b"x")
    with pytest.raises(CliError, match="more than 64 MiB"):
        session_files.read(file)


def test_the_sample_has_the_published_shape() -> None:
    """Checked by the product's own reader and thresholds, not by the generator's."""
    table = sample.table()
    rows = zip(table.lines, table.rows, strict=True)
    sessions = imported.parse(
        table.columns, rows, known=KNOWN, now=datetime(2026, 11, 1, tzinfo=UTC)
    )
    weeks: dict[int, Counter[str]] = {week: Counter() for week in range(-5, 2)}
    for session in sessions:
        week = (session.started_at - sample.FUSED_SINCE).days // 7
        if session.streamed_s >= 1 and session.fps is not None:
            weeks[week].update(rated=1, slow=session.fps <= 24.0, very=session.fps <= 23.5)
    before = [100 * weeks[week]["slow"] / weeks[week]["rated"] for week in range(-5, 0)]
    assert (min(before), max(before)) == (7, 23)
    after = weeks[0] + weeks[1]
    assert 100 * after["slow"] / after["rated"] == pytest.approx(0.7)
    assert 100 * after["very"] / after["rated"] == pytest.approx(0.08)
    every = sum(weeks.values(), Counter())
    assert 100 * (1 - every["very"] / every["rated"]) == pytest.approx(99.5, abs=0.01)
    assert sample.table() == table


def test_the_sample_goes_into_a_fleet_that_is_marked() -> None:
    there = plane()
    assert run(there, "import", "sample", *WHY).exit_code == Exit.OK
    assert (there.made[0].body["fleet"], there.made[0].body["is_sample"]) == ("sample", True)
