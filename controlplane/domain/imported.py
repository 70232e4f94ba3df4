"""Sessions that a file tells of: each cell read strictly, each bad row named with its line. Pure.

The command line reads with this, so that a person sees every bad row at once; the control plane
reads again, since it believes nobody.
"""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from controlplane.contract import vocabulary
from controlplane.contract.vocabulary import MAX_INT64, NAME_PATTERN, Outcome, Reason
from controlplane.domain.errors import DomainError, InvalidValueError, one_of

MAX_ROWS: Final = 50_000  # two seconds in which nobody else writes to SQLite
MOST_SHOWN: Final = 100
MOST_PAIRS: Final = 50
# As for sessions that are measured here: beyond them a clock or a counter is broken.
MAX_STREAMED_S: Final = 7 * 24 * 3600.0
MAX_FPS: Final = 1000.0
FIRST_START: Final = datetime(2000, 1, 1, tzinfo=UTC)
_CLOCK_SKEW: Final = timedelta(minutes=5)

REQUIRED: Final = (
    *("session", "started_at", "worker", "hardware", "stack", "flags", "streamed_s", "outcome"),
)
OPTIONAL: Final = (
    *("num_frames", "num_first_chunk_frames", "fps", "reason", "first_forward_length"),
    *("is_mixed", "is_synthetic"),
)
_SESSION: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", re.ASCII)
_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_DIGEST: Final = re.compile(r"[0-9a-f]{16}")
_COUNT: Final = re.compile(r"[0-9]{1,19}")
_NUMBER: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
_TRUTHS: Final = {"true": True, "false": False, "1": True, "0": False, "": False}
_A_NAME: Final = "lower case letters, digits, - _ . (1 to 63)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """One row."""

    id: str
    started_at: datetime
    worker: str
    hardware: str
    stack: str  # digest
    stack_parts: Mapping[str, str] | None  # None: the file gave the digest alone
    flags: Mapping[str, str]
    streamed_s: float
    num_frames: int | None
    fps: float | None  # None: nothing can be said
    outcome: Outcome
    reason: Reason | None
    first_forward_length: int
    is_mixed: bool
    is_synthetic: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRow:
    """A row that cannot be taken: the first cell of it that is not allowed."""

    line: int
    error: InvalidValueError

    def __str__(self) -> str:
        return f"line {self.line}: {self.error}"


class BadRowsError(DomainError):
    """Some rows are bad, so none is taken."""

    def __init__(self, shown: Sequence[BadRow], *, num_bad: int) -> None:
        lines = "\n".join(f"  {row}" for row in shown)
        more = f"\n  and {num_bad - len(shown)} more" if num_bad > len(shown) else ""
        rows = "1 row is bad" if num_bad == 1 else f"{num_bad} rows are bad"
        super().__init__(f"{rows}, so nothing is imported:\n{lines}{more}")
        self.shown = tuple(shown)
        self.num_bad = num_bad


@dataclass(slots=True)
class _Cells:
    """The cells of one row by column."""

    by_column: Mapping[str, str]
    known: Mapping[str, Collection[str]]
    now: datetime

    def text(self, key: str) -> str:
        return self.by_column.get(key, "").strip()

    def matching(self, key: str, pattern: re.Pattern[str], *, allowed: str) -> str:
        text = self.text(key)
        if not pattern.fullmatch(text):
            raise InvalidValueError(key, text, allowed=allowed)
        return text

    def number(self, key: str, *, most: float, unit: str) -> float:
        text = self.text(key)
        value = float(text) if _NUMBER.fullmatch(text) else math.inf
        if value > most:
            raise InvalidValueError(key, text, allowed=f"{unit} from 0 to {most:.0f}")
        return value

    def count(self, key: str) -> int:
        text = self.text(key) or "0"
        value = int(text) if _COUNT.fullmatch(text) else MAX_INT64 + 1
        if value > MAX_INT64:
            raise InvalidValueError(key, text, allowed="a whole number from 0")
        return value

    def truth(self, key: str) -> bool:
        text = self.text(key).lower()
        if text not in _TRUTHS:
            raise InvalidValueError(key, text, allowed="true, false, 1, 0 or nothing")
        return _TRUTHS[text]


@dataclass(slots=True)
class _Bad:
    """Bad rows so far: enough of them to show, and how many there are."""

    shown: list[BadRow] = field(default_factory=list)
    num: int = 0

    def add(self, line: int, error: InvalidValueError) -> None:
        self.num += 1
        if len(self.shown) < MOST_SHOWN:
            self.shown.append(BadRow(line=line, error=error))


def parse(
    columns: Sequence[str],
    rows: Iterable[tuple[int, Sequence[str]]],
    *,
    known: Mapping[str, Collection[str]],
    now: datetime,
) -> tuple[ImportedSession, ...]:
    """The sessions of a table.

    Args:
        columns: names of the columns, in the order of the cells.
        rows: line number and cells.
        known: flag -> its variants.
        now: nothing started later.

    Raises:
        InvalidValueError: a column that is unknown, missing or there twice; too many rows.
        BadRowsError: some rows are bad.
    """
    names = _columns(columns)
    bad = _Bad()
    parsed: dict[str, ImportedSession] = {}
    line_of: dict[str, int] = {}
    for number, (line, cells) in enumerate(rows, start=1):
        if number > MAX_ROWS:
            raise InvalidValueError("rows", number, allowed=f"at most {MAX_ROWS} at a time")
        try:
            session = _session(_cells(names, cells, known=known, now=now))
            _check_once(session, line_of)
        except InvalidValueError as error:
            bad.add(line, error)
            continue
        parsed[session.id], line_of[session.id] = session, line
    if bad.num:
        raise BadRowsError(bad.shown, num_bad=bad.num)
    return tuple(parsed.values())


def _check_once(session: ImportedSession, line_of: Mapping[str, int]) -> None:
    if session.id in line_of:
        allowed = f"each session once; it is in line {line_of[session.id]} too"
        raise InvalidValueError("session", session.id, allowed=allowed)


def _columns(columns: Sequence[str]) -> Sequence[str]:
    names = [name.strip() for name in columns]
    for name in names:
        if name not in (*REQUIRED, *OPTIONAL):
            raise InvalidValueError("column", name, allowed=one_of((*REQUIRED, *OPTIONAL)))
        if names.count(name) > 1:
            raise InvalidValueError("column", name, allowed="each column once")
    missing = [name for name in REQUIRED if name not in names]
    if missing:
        raise InvalidValueError("columns", one_of(names), allowed=f"also {one_of(missing)}")
    if ("num_frames" in names) == ("fps" in names):
        raise InvalidValueError("columns", one_of(names), allowed="either num_frames or fps")
    return names


def _cells(
    names: Sequence[str],
    cells: Sequence[str],
    *,
    known: Mapping[str, Collection[str]],
    now: datetime,
) -> _Cells:
    if len(cells) != len(names):
        raise InvalidValueError("cells", len(cells), allowed=f"{len(names)}, as there are columns")
    return _Cells(dict(zip(names, cells, strict=True)), known, now)


def _session(cells: _Cells) -> ImportedSession:
    streamed_s = cells.number("streamed_s", most=MAX_STREAMED_S, unit="seconds")
    outcome = _word(cells, "outcome", Outcome)
    stack, parts = _stack(cells)
    num_frames, fps = _frames(cells, streamed_s=streamed_s)
    return ImportedSession(
        id=cells.matching("session", _SESSION, allowed="letters, digits, _ . : - (1 to 64)"),
        started_at=_started_at(cells),
        worker=cells.matching("worker", _NAME, allowed=_A_NAME),
        hardware=cells.matching("hardware", _NAME, allowed=_A_NAME),
        stack=stack,
        stack_parts=parts,
        flags=_flags(cells),
        streamed_s=streamed_s,
        num_frames=num_frames,
        fps=fps,
        outcome=outcome,
        reason=_word(cells, "reason", Reason) if cells.text("reason") else None,
        first_forward_length=cells.count("first_forward_length"),
        is_mixed=cells.truth("is_mixed"),
        is_synthetic=cells.truth("is_synthetic"),
    )


def _word(cells: _Cells, key: str, words: Callable[[str], Any]) -> Any:
    text = cells.text(key)
    try:
        return words(text)
    except ValueError:
        raise InvalidValueError(key, text, allowed=one_of(words)) from None  # type: ignore[arg-type]  # an enum lists its words


def _started_at(cells: _Cells) -> datetime:
    text = cells.text("started_at")
    allowed = "an ISO 8601 time with its zone, such as 2026-10-08T12:00:00Z, that has been"
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError("started_at", text, allowed=allowed) from None
    if moment.utcoffset() is None or not FIRST_START <= moment <= cells.now + _CLOCK_SKEW:
        raise InvalidValueError("started_at", text, allowed=allowed)
    return moment.astimezone(UTC)


def _frames(cells: _Cells, *, streamed_s: float) -> tuple[int | None, float | None]:
    if "fps" in cells.by_column:
        given = cells.text("fps")
        fps = cells.number("fps", most=MAX_FPS, unit="frames a second") if given else None
        return None, fps
    num_frames = cells.count("num_frames")
    first = cells.count("num_first_chunk_frames")
    if not first <= num_frames <= first + MAX_FPS * max(streamed_s, 1.0):
        allowed = f"from num_first_chunk_frames, {first}, to what {streamed_s:g} s can hold"
        raise InvalidValueError("num_frames", num_frames, allowed=allowed)
    fps = vocabulary.session_fps(
        num_frames=num_frames, num_first_chunk_frames=first, streamed_s=streamed_s
    )
    return num_frames, fps


def _stack(cells: _Cells) -> tuple[str, Mapping[str, str] | None]:
    text = cells.text("stack")
    if _DIGEST.fullmatch(text):
        return text, None
    parts = _pairs("stack", text, allowed="a digest of 16 hex digits, or torch=2.11;driver=580")
    return vocabulary.stack_digest(parts), parts


def _flags(cells: _Cells) -> Mapping[str, str]:
    text = cells.text("flags")
    flags = _pairs("flags", text, allowed="flag=variant, several with ; between")
    for flag, variant in flags.items():
        if flag not in cells.known:
            raise InvalidValueError("flags", text, allowed=f"flags {one_of(cells.known)}")
        if variant not in cells.known[flag]:
            allowed = f"variants of {flag}: {one_of(cells.known[flag])}"
            raise InvalidValueError("flags", text, allowed=allowed)
    return flags


def _pairs(key: str, text: str, *, allowed: str) -> Mapping[str, str]:
    pairs = [part.strip().partition("=") for part in text.split(";", MOST_PAIRS)]
    names = {name for name, _, _ in pairs}
    is_sound = all(
        _NAME.fullmatch(name) and value and value.isprintable() and len(value) <= MOST_SHOWN
        for name, _, value in pairs
    )
    if not is_sound or len(names) != len(pairs):
        raise InvalidValueError(key, text, allowed=allowed)
    return {name: value for name, _, value in pairs}
