"""What goes into a column comes out of it, on both databases."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select
from sqlalchemy.exc import StatementError

from controlplane.store.columns import to_json
from controlplane.store.tables import fleets, idempotency_keys, stacks
from controlplane.store.transaction import Database
from tests.clock import START

# The database is a container here: each example clears what it wrote.
_SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
_MOMENTS = st.datetimes(
    min_value=datetime(1900, 1, 1),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=45))]),
)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@_SHARED
@given(moment=_MOMENTS)
def test_a_time_comes_back_to_the_microsecond_in_utc(database: Database, moment: datetime) -> None:
    with database.write() as conn:
        conn.execute(delete(stacks))
        conn.execute(stacks.insert().values(digest="d", parts={}, first_seen_at=moment))
        found = conn.scalars(select(stacks.c.first_seen_at)).one()
    assert found == moment
    assert found.tzinfo is UTC


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    naive = START.replace(tzinfo=None)
    with pytest.raises(StatementError, match="no time zone"), database.write() as conn:
        conn.execute(stacks.insert().values(digest="d", parts={}, first_seen_at=naive))


@_SHARED
@given(value=_VALUES.filter(lambda value: value is not None))
def test_json_comes_back_with_nul_shown(database: Database, value: Any) -> None:
    """PostgreSQL keeps no NUL: one in a worker's text must not cost the whole batch."""
    with database.write() as conn:
        conn.execute(delete(idempotency_keys))
        row = {"key": "k", "request_digest": "d", "response": value, "created_at": START}
        conn.execute(idempotency_keys.insert(), row)
        assert conn.scalars(select(idempotency_keys.c.response)).one() == _shown(value)


def test_an_escaped_backslash_before_u0000_is_no_nul() -> None:
    assert to_json("\\u0000") == '"\\\\u0000"'
    assert to_json("\\\x00") == '"\\\\\\ufffd"'


def test_free_text_is_cut_to_its_bound(database: Database) -> None:
    with database.write() as conn:
        row = {"id": "f", "name": "f", "mode": "observe", "promoted": {}, "version": 1}
        conn.execute(fleets.insert().values(stopped_reason="a\x00" + "b" * 2000, **row))
        kept = conn.scalars(select(fleets.c.stopped_reason)).one()
    assert kept == "a\ufffd" + "b" * 998


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, list):
        return [_shown(one) for one in value]
    if isinstance(value, dict):
        return {_shown(key): _shown(one) for key, one in value.items()}
    return value
