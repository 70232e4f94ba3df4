"""Leader, audit trail, outbox, idempotency keys and tokens."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import delete, update

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.store import audit as audit_store
from controlplane.store import idempotency as idempotency_store
from controlplane.store import leader as leader_store
from controlplane.store import outbox as outbox_store
from controlplane.store import tokens as token_store
from controlplane.store.audit import BrokenChainError
from controlplane.store.leader import LeadershipLostError
from controlplane.store.tables import audit
from controlplane.store.tokens import Token
from controlplane.store.transaction import Connection, Database
from tests import build
from tests.clock import START, FakeClock

_TTL = timedelta(seconds=10)


def test_one_leads_until_its_time_is_over(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        assert _lead(conn, "a", clock) == 1
        assert _lead(conn, "b", clock) is None
        clock.advance(seconds=5)
        assert _lead(conn, "a", clock) == 1
        clock.advance(seconds=9)
        assert _lead(conn, "b", clock) is None
        clock.advance(seconds=1)
        assert _lead(conn, "b", clock) == 2


def test_a_leader_that_slept_is_fenced(database: Database, clock: FakeClock) -> None:
    """It decided before it slept and would record afterwards: the epoch tells."""
    with database.write() as conn:
        epoch = _lead(conn, "a", clock)
        assert epoch is not None
        leader_store.require(conn, epoch=epoch)
        clock.advance(seconds=11)
        _lead(conn, "b", clock)
        with pytest.raises(LeadershipLostError):
            leader_store.require(conn, epoch=epoch)
        assert not leader_store.renew(conn, holder="a", epoch=epoch, now=clock.now(), ttl=_TTL)


def test_a_leader_that_let_its_time_run_out_begins_anew(
    database: Database, clock: FakeClock
) -> None:
    with database.write() as conn:
        assert _lead(conn, "a", clock) == 1
        clock.advance(seconds=11)
        assert _lead(conn, "a", clock) == 2
        leader_store.release(conn, holder="a", now=clock.now())
        assert _lead(conn, "b", clock) == 3


def test_an_unbroken_audit_trail_is_verified(database: Database) -> None:
    with database.write() as conn:
        assert audit_store.verify(conn) == 0
        for number in range(3):
            _act(conn, str(number))
        assert audit_store.verify(conn) == 3
        newest = audit_store.page(conn, limit=2)
        assert [row.target for row in newest] == ["2", "1"]
        assert [row.target for row in audit_store.page(conn, after=newest[-1].sequence)] == ["0"]


@pytest.mark.parametrize(
    "tamper",
    [
        update(audit).where(audit.c.sequence == 2).values(actor="nobody"),
        update(audit).where(audit.c.sequence == 2).values(detail='{"n":1.50}'),
        update(audit).where(audit.c.sequence == 2).values(at=START + timedelta(microseconds=1)),
        delete(audit).where(audit.c.sequence == 2),
        delete(audit).where(audit.c.sequence == 1),
    ],
    ids=["actor", "detail", "time", "a row", "the first row"],
)
def test_a_changed_audit_trail_is_detected(database: Database, tamper: object) -> None:
    with database.write() as conn:
        for number in range(3):
            _act(conn, str(number))
        conn.execute(tamper)  # type: ignore[call-overload] # parameters are seen as objects
        with pytest.raises(BrokenChainError):
            audit_store.verify(conn)


def test_what_does_not_fit_is_cut_before_it_is_hashed(database: Database) -> None:
    with database.write() as conn:
        _act(conn, "t" * 500, reason="a\x00b" * 1000)
        assert audit_store.verify(conn) == 1


def test_a_letter_is_due_until_it_is_sent(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        for number in range(2):
            outbox_store.append(conn, topic="canary", body={"n": number}, now=clock.now())
        first, second = outbox_store.due(conn, now=clock.now())
        outbox_store.mark_sent(conn, sequence=first.sequence, now=clock.now())
        retry = clock.now() + timedelta(minutes=1)
        outbox_store.mark_failed(conn, sequence=second.sequence, error="503", due_at=retry)
        assert outbox_store.due(conn, now=clock.now()) == ()
        (again,) = outbox_store.due(conn, now=clock.advance(minutes=1))
    assert (again.body, again.num_attempts) == ({"n": 1}, 1)


def test_a_repeated_request_gets_the_first_answer(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        claim: dict[str, Any] = {"key": "k", "now": clock.now()}
        assert idempotency_store.claim(conn, request_digest="d", **claim) is None
        idempotency_store.keep(conn, key="k", response={"name": "fused-1"})
        assert idempotency_store.claim(conn, request_digest="d", **claim) == {"name": "fused-1"}
        with pytest.raises(ConflictError, match="take a new one"):
            idempotency_store.claim(conn, request_digest="other", **claim)
        assert idempotency_store.forget(conn, before=clock.advance(minutes=1)) == 1
        assert idempotency_store.claim(conn, request_digest="other", **claim) is None


def test_a_token_speaks_until_it_expires_or_is_revoked(
    database: Database, clock: FakeClock
) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        token = _token(expires_at=START + timedelta(hours=1))
        token_store.insert(conn, token, secret="s3cret")
        assert token_store.find(conn, secret="s3cret", now=clock.now()) == token
        assert token_store.find(conn, secret="other", now=clock.now()) is None
        assert token_store.find(conn, secret="s3cret", now=clock.advance(hours=1)) is None


def test_a_revoked_token_stays_revoked(database: Database, clock: FakeClock) -> None:
    with database.write() as conn:
        build.put_fleet(conn)
        token_store.insert(conn, _token(), secret="s3cret")
        token_store.revoke(conn, id="token-1", now=clock.now())
        later = token_store.revoke(conn, id="token-1", now=clock.advance(hours=1))
        assert later.revoked_at == START
        assert token_store.find(conn, secret="s3cret", now=clock.now()) is None
        assert [one.id for one in token_store.list_all(conn)] == ["token-1"]
        with pytest.raises(NotFoundError):
            token_store.revoke(conn, id="token-2", now=clock.now())


def _lead(conn: Connection, holder: str, clock: FakeClock) -> int | None:
    return leader_store.acquire(conn, holder=holder, now=clock.now(), ttl=_TTL)


def _act(conn: Connection, target: str, *, reason: str = "because") -> None:
    audit_store.append(
        conn,
        actor="ada",
        action="fleet.stopped",
        target=target,
        reason=reason,
        detail={"n": 1.5},
        now=START,
    )


def _token(**changes: object) -> Token:
    base: dict[str, Any] = {
        "id": "token-1",
        "name": "ada's laptop",
        "role": "operator",
        "fleet": build.FLEET,
        "worker": None,
        "created_at": START,
        "expires_at": None,
        "revoked_at": None,
    }
    return Token(**{**base, **changes})
