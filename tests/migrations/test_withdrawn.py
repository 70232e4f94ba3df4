"""Migration 0007 lets a canary be withdrawn, and keeps the transitions that there are."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from controlplane import assets
from controlplane.store import history
from controlplane.store.transaction import Connection, Database
from tests.migrations.steps import migrate, moment, put_canary, put_fleet


def test_transitions_are_kept_in_their_order_and_one_more_event_is_known(empty: Database) -> None:
    with empty.write() as conn:
        migrate(conn, to="0006")
        put_fleet(conn)
        put_canary(conn)
        for event in ("started", "preflight_passed", "inconclusive"):
            _happen(conn, event)
    with pytest.raises(IntegrityError), empty.write() as conn:
        _happen(conn, "withdrawn")
    empty.migrate(assets.migrations())
    with empty.write() as conn:
        _happen(conn, "withdrawn")
        found = history.transitions_of(conn, canary_id="canary")
    assert [one.event for one in reversed(found)] == [
        "started",
        "preflight_passed",
        "inconclusive",
        "withdrawn",
    ]
    sequences = [one.sequence for one in reversed(found)]
    assert sequences == sorted(set(sequences))
    with pytest.raises(IntegrityError), empty.write() as conn:
        _happen(conn, "vanished")


def _happen(conn: Connection, event: str) -> None:
    conn.execute(
        text(
            "INSERT INTO transitions"
            " (canary_id, event, phase_from, phase_to, step, reason, actor, at)"
            " VALUES ('canary', :event, 'held', 'held', 0, '', 'ada', :at)"
        ),
        {"event": event, "at": moment(conn)},
    )
