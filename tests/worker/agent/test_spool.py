"""Records on disk: what a crash, a torn tail or a full disk may cost, and what not."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from worker.agent import spool
from worker.agent.spool import HEADER, Entry, Kind, Spool, SpoolFullError

PAYLOADS = st.lists(st.binary(max_size=60), min_size=1, max_size=12)


def filled(folder: Path, payloads: list[bytes]) -> None:
    opened = Spool(folder)
    for payload in payloads:
        opened.append(payload, kind=Kind.WINDOW)
    opened.close()


def payloads_of(folder: Path) -> list[bytes]:
    opened = Spool(folder)
    found = [entry.payload for entry in opened.entries()]
    opened.close()
    return found


@settings(deadline=None, max_examples=60)
@given(payloads=PAYLOADS, part=st.floats(0, 1))
def test_any_cut_of_the_file_loses_at_most_the_torn_tail(
    payloads: list[bytes], part: float
) -> None:
    """Whatever was whole before the cut is there, and what comes after it can be read again."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled(folder, payloads)
        path = folder / spool.FILE_NAME
        content = path.read_bytes()
        cut = int(len(content) * part)
        path.write_bytes(content[:cut])
        ends = [0]
        for payload in payloads:
            ends.append(ends[-1] + HEADER.size + len(payload))
        num_whole = sum(end <= cut for end in ends) - 1
        opened = Spool(folder)
        opened.append(b"after", kind=Kind.WINDOW)
        assert [e.payload for e in opened.entries()] == [*payloads[:num_whole], b"after"]
        opened.close()


@settings(deadline=None, max_examples=60)
@given(payloads=PAYLOADS, where=st.floats(0, 0.999), bit=st.integers(0, 7))
def test_a_flipped_bit_never_yields_a_record_that_was_not_written(
    payloads: list[bytes], where: float, bit: int
) -> None:
    """Evidence is right or missing."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        filled(folder, payloads)
        path = folder / spool.FILE_NAME
        content = bytearray(path.read_bytes())
        content[int(len(content) * where)] ^= 1 << bit
        path.write_bytes(content)
        found = payloads_of(folder)
        assert found == payloads[: len(found)]
        assert len(found) < len(payloads)


def test_the_cursor_is_kept_over_a_restart(tmp_path: Path) -> None:
    """What was delivered is not sent for ever."""
    opened = Spool(tmp_path)
    numbers = [opened.append(b"%d" % i, kind=Kind.WINDOW) for i in range(3)]
    opened.confirm(numbers[1] or 0)
    opened.close()
    again = Spool(tmp_path)
    assert [e.payload for e in again.pending(limit=9)] == [b"2"]
    assert again.append(b"3", kind=Kind.WINDOW) == 4
    assert spool.num_undelivered(tmp_path) == 2
    again.close()


def test_a_damaged_cursor_means_send_again(tmp_path: Path) -> None:
    """Repeats do no harm; a loss would."""
    opened = Spool(tmp_path)
    opened.confirm(opened.append(b"0", kind=Kind.WINDOW) or 0)
    opened.close()
    (tmp_path / spool.CURSOR_NAME).write_bytes(b"\xff" * 12)
    again = Spool(tmp_path)
    assert [e.payload for e in again.pending(limit=9)] == [b"0"]
    again.close()


def test_numbers_are_not_used_twice_when_all_was_delivered_and_removed(tmp_path: Path) -> None:
    """A reused number at or below the cursor would never be sent."""
    opened = Spool(tmp_path, limit_bytes=200)
    last = 0
    for _ in range(20):
        last = opened.append(b"x" * 50, kind=Kind.STARTED) or 0
        opened.confirm(last)
    opened.close()
    (tmp_path / spool.FILE_NAME).write_bytes(b"")
    again = Spool(tmp_path)
    assert again.append(b"y", kind=Kind.WINDOW) == last + 1
    assert [e.payload for e in again.pending(limit=9)] == [b"y"]
    again.close()


def test_a_full_spool_drops_the_oldest_windows_and_nothing_else(tmp_path: Path) -> None:
    """Windows are cumulative; starts and ends are said once."""
    opened = Spool(tmp_path, limit_bytes=1000)
    kinds = [Kind.STARTED, *[Kind.WINDOW] * 12, Kind.ENDED]
    for number, kind in enumerate(kinds, start=1):
        opened.append(b"%02d" % number + b"x" * 78, kind=kind)
    kept = opened.entries()
    windows = [e.number for e in kept if e.kind is Kind.WINDOW]
    assert [e.kind for e in kept if e.kind is not Kind.WINDOW] == [Kind.STARTED, Kind.ENDED]
    assert windows == list(range(windows[0], 14))
    assert opened.size_bytes <= 1000
    assert opened.num_dropped == 12 - len(windows)
    opened.close()


def test_a_spool_full_of_starts_takes_no_session_but_every_end(tmp_path: Path) -> None:
    """A session that cannot be recorded is not taken; one that was taken is not lost."""
    opened = Spool(tmp_path, limit_bytes=1000)  # ten entries of 97 bytes
    for _ in range(10):
        opened.append(b"x" * 80, kind=Kind.STARTED)
    with pytest.raises(SpoolFullError):
        opened.append(b"x" * 80, kind=Kind.STARTED)
    assert opened.append(b"w" * 80, kind=Kind.WINDOW) is None
    assert opened.append(b"e" * 80, kind=Kind.ENDED) is not None
    assert opened.num_dropped == 1
    opened.close()


def test_compaction_keeps_what_is_needed_and_what_is_undelivered(tmp_path: Path) -> None:
    """A delivered start is still needed while its session is open."""
    opened = Spool(tmp_path, limit_bytes=700, needed=lambda _entries: frozenset({1}))
    for _ in range(6):
        opened.append(b"x" * 80, kind=Kind.STARTED)
    opened.confirm(4)
    opened.append(b"y" * 200, kind=Kind.STARTED)
    assert [e.number for e in opened.entries()] == [1, 5, 6, 7]
    assert [e.number for e in opened.pending(limit=2)] == [5, 6]
    opened.close()


def test_entries_are_what_was_appended(tmp_path: Path) -> None:
    """Number, kind and payload survive the way through the file."""
    opened = Spool(tmp_path)
    opened.append(b"a", kind=Kind.STARTED)
    opened.append(b"", kind=Kind.ENDED)
    opened.close()
    again = Spool(tmp_path)
    assert again.entries() == [
        Entry(number=1, kind=Kind.STARTED, payload=b"a"),
        Entry(number=2, kind=Kind.ENDED, payload=b""),
    ]
    again.close()
