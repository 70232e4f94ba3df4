"""A file of sessions is read strictly: every bad row is named with its line and what is allowed."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract import vocabulary
from controlplane.domain import imported
from controlplane.domain.errors import InvalidValueError
from controlplane.domain.imported import BadRowsError, ImportedSession

NOW = datetime(2026, 11, 1, tzinfo=UTC)
KNOWN = {"fused_allreduce": ["nccl", "fused_steady"]}
GOOD = {
    "session": "s-1",
    "started_at": "2026-10-08T01:00:00+02:00",
    "worker": "worker-9",
    "hardware": "h100x4",
    "stack": "torch=2.11;driver=580.82",
    "flags": "fused_allreduce=nccl",
    "streamed_s": "10",
    "outcome": "completed",
    "num_frames": "244",
    "num_first_chunk_frames": "4",
}


def parse(*rows: dict[str, str]) -> tuple[ImportedSession, ...]:
    table = [(line, list({**GOOD, **row}.values())) for line, row in enumerate(rows, start=2)]
    return imported.parse(list(GOOD), table, known=KNOWN, now=NOW)


def test_a_row_is_read_as_it_is_meant() -> None:
    (session,) = parse({})
    assert session.fps == 24.0
    assert session.started_at == datetime(2026, 10, 7, 23, tzinfo=UTC)
    assert session.stack == vocabulary.stack_digest({"torch": "2.11", "driver": "580.82"})
    assert session.flags == {"fused_allreduce": "nccl"}


@pytest.mark.parametrize(
    ("key", "value", "allowed"),
    [
        ("session", "=HYPERLINK(1)", "letters"),
        ("session", "a\x00b", "letters"),
        ("session", "x" * 65, "1 to 64"),
        ("started_at", "2026-10-08T01:00:00", "with its zone"),
        ("started_at", "2031-01-01T00:00:00Z", "that has been"),
        ("started_at", "1970-01-01T00:00:00Z", "that has been"),
        ("started_at", "08/10/2026", "ISO 8601"),
        ("worker", "Worker 9", "lower case"),
        ("stack", "torch", "16 hex digits"),
        ("stack", "torch=2;torch=3", "16 hex digits"),
        ("flags", "fused_allreduce=fast", "fused_steady, nccl"),
        ("flags", "kv_cache=plain", "fused_allreduce"),
        ("streamed_s", "-1", "seconds from 0"),
        ("streamed_s", "nan", "seconds from 0"),
        ("streamed_s", "1e3", "seconds from 0"),
        ("streamed_s", "604801", "604800"),
        ("num_frames", "9223372036854775808", "a whole number"),
        ("num_frames", "3", "from num_first_chunk_frames, 4"),
        ("num_frames", "99999999", "what 10 s can hold"),
        ("outcome", "ok", "completed"),
    ],
)
def test_a_bad_cell_is_named_with_its_line_and_what_is_allowed(
    key: str, value: str, allowed: str
) -> None:
    with pytest.raises(BadRowsError) as refused:
        parse({}, {"session": "s-2", key: value})
    (bad,) = refused.value.shown
    assert (bad.line, bad.error.key) == (3, key)
    assert allowed in bad.error.allowed
    assert "\x00" not in str(refused.value)


def test_the_first_hundred_bad_rows_are_shown_and_the_rest_counted() -> None:
    """A file in the wrong form has as many bad rows as rows."""
    with pytest.raises(BadRowsError, match="and 20 more") as refused:
        parse(*({"outcome": "ok"} for _ in range(120)))
    assert (refused.value.num_bad, len(refused.value.shown)) == (120, 100)


def test_a_session_twice_names_both_lines() -> None:
    with pytest.raises(BadRowsError, match=r"line 3: session: 's-1' .* it is in line 2 too"):
        parse({}, {})


@pytest.mark.parametrize(
    "columns",
    [
        [*GOOD, "colour"],
        [*GOOD, "session"],
        [name for name in GOOD if name != "outcome"],
        [*GOOD, "fps"],
        [name for name in GOOD if name != "num_frames"],
    ],
)
def test_unknown_double_missing_and_rival_columns_are_refused(columns: Sequence[str]) -> None:
    with pytest.raises(InvalidValueError, match="column"):
        imported.parse(columns, [], known=KNOWN, now=NOW)


@given(st.lists(st.lists(st.text(), max_size=12), max_size=5), st.lists(st.text(), max_size=12))
def test_no_table_is_a_fault_of_ours(rows: list[list[str]], columns: list[str]) -> None:
    """Whatever a file holds, it is taken or refused in words."""
    for names in (columns, list(GOOD)):
        try:
            imported.parse(names, enumerate(rows, start=2), known=KNOWN, now=NOW)
        except (InvalidValueError, BadRowsError) as refusal:
            text = str(refusal)
        else:
            text = "taken"
        assert text
