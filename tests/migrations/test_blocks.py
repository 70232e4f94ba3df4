"""Migration 0005 keeps the blocks of evidence that there are, in the order they opened."""

from sqlalchemy import Connection, text

from controlplane import assets
from controlplane.domain import comparison
from controlplane.domain.blocks import ArmCounts, Kind
from controlplane.domain.comparison import Weights
from controlplane.store import history
from controlplane.store.transaction import Database
from tests.clock import START
from tests.migrations.steps import migrate, moment, put_canary, put_fleet


def test_blocks_that_exist_are_kept_and_are_no_evidence(empty: Database) -> None:
    """They say how many were slow in each arm, but not who was compared with whom."""
    with empty.write() as conn:
        migrate(conn, to="0004")
        _fill(conn)
    empty.migrate(assets.migrations())
    with empty.read() as conn:
        found = history.blocks_of(conn, canary_id="canary")
        assert not history.blocks_of(conn, canary_id="other")
    assert [(block.index, block.kind) for block in found] == [
        (2, Kind.SESSIONS),
        (10, Kind.SESSIONS),
    ]
    assert found[0].arms == {"canary": ArmCounts(num_started=3, num_rated=3, num_slow=3)}
    assert found[0].opened_at == START
    assert comparison.regression(found, Weights()).value == 1.0


def _fill(conn: Connection) -> None:
    put_fleet(conn)
    put_canary(conn)
    counts = (
        '{"canary": {"num_started": 3, "num_rated": 3, "num_slow": 3, "num_very_slow": 0,'
        ' "num_failed": 0}}'
    )
    for position in (10, 2):
        conn.execute(
            text(
                "INSERT INTO evidence_blocks"
                " (canary_id, position, opened_at, closed_at, arms, sessions)"
                " VALUES ('canary', :position, :at, :at, :counts, '[\"s1\"]')"
            ),
            {"position": position, "at": moment(conn), "counts": counts},
        )
