"""Records on disk until the control plane has them: one append-only file and a cursor.

An entry is in the file once `append` returns, and survives a SIGKILL of the process (not of the
machine: nothing is synced per record). Knows nothing of what the payloads mean.
"""

import logging
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from worker.agent import files

FILE_NAME = "spool"
CURSOR_NAME = "spool.cursor"
LIMIT_BYTES = 64 * 1024 * 1024
# The last word on a session already started must fit even when nothing else does.
RESERVE_BYTES = 1024 * 1024
# Rewriting the file is worth it once this much of it has been delivered.
COMPACT_BYTES = 1024 * 1024
# Length of the payload, checksum of the rest, number, kind.
HEADER = struct.Struct("<IIQB")
MAX_PAYLOAD_BYTES = 4 * 1024 * 1024

logger = logging.getLogger(__name__)


class Kind(IntEnum):
    """What may happen to an entry when room is short."""

    WINDOW = 1  # may be dropped: a later one says the same and more
    STARTED = 2  # never dropped; refused when the spool is full
    ENDED = 3  # never dropped, never refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One payload; numbers rise and are never used twice."""

    number: int
    kind: Kind
    payload: bytes


class SpoolFullError(Exception):
    """A record that must not be lost does not fit: take no session until some are delivered."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"the spool holds {limit_bytes} bytes of undelivered records: "
            "restore the connection to the control plane before starting sessions"
        )
        self.limit_bytes = limit_bytes


Needed = Callable[[Sequence[Entry]], frozenset[int]]


def needs_nothing(_entries: Sequence[Entry]) -> frozenset[int]:
    """No delivered entry is kept."""
    return frozenset()


def num_undelivered(folder: Path) -> int:
    """How many entries of the spool in `folder` wait for delivery; only reads."""
    path = folder / FILE_NAME
    cursor = _stored_cursor(folder / CURSOR_NAME)
    entries, _ = _scan(path.read_bytes() if path.exists() else b"")
    return sum(entry.number > cursor for entry in entries)


class Spool:
    """The file, its cursor and an index in memory. Safe to use from several threads."""

    def __init__(
        self, folder: Path, *, limit_bytes: int = LIMIT_BYTES, needed: Needed = needs_nothing
    ) -> None:
        """Open or create the spool in `folder`; a torn tail is cut off.

        `needed` says which delivered entries compaction must keep, by number.
        """
        self._path = folder / FILE_NAME
        self._cursor_path = folder / CURSOR_NAME
        self._limit_bytes = limit_bytes
        self._needed = needed
        self._lock = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        found, whole_bytes = _scan(self._path.read_bytes() if self._path.exists() else b"")
        self._index = [_place(entry) for entry in found]
        self._cursor = _stored_cursor(self._cursor_path)
        self._next_number = max(self._cursor, found[-1].number if found else 0) + 1
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        self._size_bytes = whole_bytes
        self._cut_to(whole_bytes)
        self.num_dropped = 0

    @property
    def cursor(self) -> int:
        """Number of the last entry that has been delivered."""
        return self._cursor

    @property
    def size_bytes(self) -> int:
        """Bytes of the file."""
        with self._lock:
            return self._size_bytes

    def append(self, payload: bytes, *, kind: Kind) -> int | None:
        """Write one entry and return its number; None for a window that found no room.

        Raises: SpoolFullError if it is none and nothing may be dropped for it.
        """
        assert len(payload) <= MAX_PAYLOAD_BYTES, "a record is bounded by the contract"
        with self._lock:
            if not self._make_room(HEADER.size + len(payload), kind=kind):
                self.num_dropped += 1
                return None
            entry = Entry(number=self._next_number, kind=kind, payload=payload)
            _write_all(self._file, _encoded(entry))
            self._index.append(_place(entry))
            self._size_bytes += HEADER.size + len(payload)
            self._next_number += 1
            return entry.number

    def pending(self, *, limit: int) -> list[Entry]:
        """The oldest undelivered entries, at most `limit`."""
        with self._lock:
            offset = 0
            found: list[Entry] = []
            for place in self._index:
                if place.number > self._cursor:
                    found.append(self._read(place, offset=offset))
                    if len(found) == limit:
                        break
                offset += place.size_bytes
            return found

    def num_pending(self) -> int:
        """How many entries wait for delivery."""
        with self._lock:
            return sum(place.number > self._cursor for place in self._index)

    def confirm(self, number: int) -> None:
        """Move the cursor: everything up to `number` is delivered or set aside."""
        with self._lock:
            if number <= self._cursor:
                return
            self._cursor = number
            files.replace(self._cursor_path, _encoded_cursor(number), is_synced=False)
            delivered_bytes = sum(p.size_bytes for p in self._index if p.number <= self._cursor)
            if delivered_bytes > COMPACT_BYTES:
                self._compact()

    def entries(self) -> list[Entry]:
        """Everything in the file, delivered or not, in order."""
        with self._lock:
            return self._read_all()

    def close(self) -> None:
        """Close the file; what is in it stays."""
        with self._lock:
            os.close(self._file)

    def _make_room(self, num_bytes: int, *, kind: Kind) -> bool:
        if self._size_bytes + num_bytes <= self._limit_bytes:
            return True
        self._compact()
        if self._size_bytes + num_bytes > self._limit_bytes:
            self._drop_oldest_windows()
        reserve_bytes = RESERVE_BYTES if kind is Kind.ENDED else 0
        fits = self._size_bytes + num_bytes <= self._limit_bytes + reserve_bytes
        if not fits and kind is not Kind.WINDOW:
            raise SpoolFullError(self._limit_bytes)
        return fits

    def _compact(self) -> None:
        entries = self._read_all()
        needed = self._needed(entries)
        self._rewrite([e for e in entries if e.number > self._cursor or e.number in needed])

    def _drop_oldest_windows(self) -> None:
        # Down to three quarters, so that the file is not rewritten for every record.
        target_bytes = self._limit_bytes * 3 // 4
        size_bytes = self._size_bytes
        kept: list[Entry] = []
        for entry in self._read_all():
            if entry.kind is Kind.WINDOW and size_bytes > target_bytes:
                size_bytes -= HEADER.size + len(entry.payload)
                self.num_dropped += 1
            else:
                kept.append(entry)
        logger.warning("spool_windows_dropped num_dropped=%d", self.num_dropped)
        self._rewrite(kept)

    def _rewrite(self, entries: Iterable[Entry]) -> None:
        kept = list(entries)
        content = b"".join(_encoded(entry) for entry in kept)
        files.replace(self._path, content, is_synced=False)
        os.close(self._file)
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND)
        self._index = [_place(entry) for entry in kept]
        self._size_bytes = sum(place.size_bytes for place in self._index)

    def _read_all(self) -> list[Entry]:
        return _scan(os.pread(self._file, self._size_bytes, 0))[0]

    def _read(self, place: "_Place", *, offset: int) -> Entry:
        return _scan(os.pread(self._file, place.size_bytes, offset))[0][0]

    def _cut_to(self, whole_bytes: int) -> None:
        torn_bytes = os.fstat(self._file).st_size - whole_bytes
        if torn_bytes:
            logger.warning("spool_tail_cut num_bytes=%d", torn_bytes)
            os.ftruncate(self._file, whole_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What the index keeps of an entry."""

    number: int
    size_bytes: int


def _place(entry: Entry) -> _Place:
    return _Place(number=entry.number, size_bytes=HEADER.size + len(entry.payload))


def _encoded(entry: Entry) -> bytes:
    length, number, kind = len(entry.payload), entry.number, entry.kind
    checksum = zlib.crc32(HEADER.pack(0, 0, number, kind)[8:] + entry.payload)
    return HEADER.pack(length, checksum, number, kind) + entry.payload


def _encoded_cursor(number: int) -> bytes:
    content = number.to_bytes(8, "little")
    return content + zlib.crc32(content).to_bytes(4, "little")


def _stored_cursor(path: Path) -> int:
    """The cursor in the file; without a readable one all is sent again, which does no harm."""
    if not path.exists():
        return 0
    content = path.read_bytes()
    number = int.from_bytes(content[:8], "little")
    return number if content == _encoded_cursor(number) else 0


def _scan(content: bytes) -> tuple[list[Entry], int]:
    """Whole entries from the start, and where they end: nothing behind damage is trusted."""
    entries: list[Entry] = []
    offset = 0
    while offset + HEADER.size <= len(content):
        length, checksum, number, kind = HEADER.unpack_from(content, offset)
        end = offset + HEADER.size + length
        if length > MAX_PAYLOAD_BYTES or end > len(content):
            break
        # The checksum covers the number and the kind, too, so a kind that passes it is one of ours.
        if zlib.crc32(content[offset + 8 : end]) != checksum:
            break
        payload = content[offset + HEADER.size : end]
        entries.append(Entry(number=number, kind=Kind(kind), payload=payload))
        offset = end
    return entries, offset


def _write_all(file: int, content: bytes) -> None:
    written = os.write(file, content)
    if written != len(content):
        # A disk that is full takes a part: cut it off again, so that what follows can be read.
        os.ftruncate(file, os.fstat(file).st_size - written)
        message = f"wrote {written} of {len(content)} bytes to the spool: is the disk full?"
        raise OSError(message)
