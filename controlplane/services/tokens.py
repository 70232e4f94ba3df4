"""API tokens: made, recognised, revoked. Only their SHA-256 is ever kept."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from controlplane.domain import errors
from controlplane.services.change import Act, Change
from controlplane.store import audit as audit_store
from controlplane.store import tokens as token_store
from controlplane.store.tokens import Token
from controlplane.store.transaction import Connection

# Marks our tokens for secret scanners and for the redaction of logs.
PREFIX = "sf_"
WORKER = "worker"
ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks, and what for they may."""

    id: str
    actor: str  # as the audit log names them
    role: str
    fleet: str | None  # None: every fleet
    worker: str | None  # None: every worker of the fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a new token may do, and where."""

    role: str
    fleet: str | None = None
    worker: str | None = None


def principal(conn: Connection, *, token: str, now: datetime) -> Principal | None:
    """Who `token` stands for; None if it is not known, has expired or was revoked."""
    stored = token_store.find(conn, secret=token, now=now)
    return None if stored is None else principal_of(stored)


def principal_of(token: Token) -> Principal:
    """Who a valid `token` stands for."""
    return Principal(
        id=token.id, actor=token.name, role=token.role, fleet=token.fleet, worker=token.worker
    )


def create(conn: Connection, grant: Grant, *, new_secret: Callable[[], str], act: Act) -> Change:
    """Make a token; the answer is the only time it is shown.

    Raises:
        InvalidValueError: the grant makes no sense.
        NotFoundError: no fleet of that name.
    """
    _check(grant)
    secret = PREFIX + new_secret()
    token_id = act.new_id()
    token = Token(
        id=token_id,
        name=f"{grant.worker or grant.role}:{token_id[-12:]}",
        role=grant.role,
        fleet=grant.fleet,
        worker=grant.worker,
        created_at=act.now,
        expires_at=None,
        revoked_at=None,
    )
    token_store.insert(conn, token, secret=secret)
    _audit(conn, token, "token.created", act=act)
    where = f"fleet {grant.fleet}" if grant.fleet else "every fleet"
    whose = f", worker {grant.worker} only" if grant.worker else ""
    sentence = f"whoever holds the token is {grant.role} in {where}{whose}"
    return Change(subject=token, effects=(sentence,), secret={"token": secret})


def revoke(conn: Connection, token_id: str, *, act: Act) -> Change:
    """Refuse the token from now on.

    Raises:
        NotFoundError: there is no such token.
    """
    token = token_store.revoke(conn, id=token_id, now=act.now)
    if token.revoked_at != act.now:
        return Change(subject=token, effects=("nothing changes: it was revoked before",))
    _audit(conn, token, "token.revoked", act=act)
    return Change(subject=token, effects=(f"{token.name} is refused from the next request on",))


def list_all(conn: Connection) -> tuple[Token, ...]:
    """Every token, newest first; the store keeps nothing that could be used as one."""
    return token_store.list_all(conn)


def _check(grant: Grant) -> None:
    if grant.role == WORKER and grant.fleet is None:
        raise errors.InvalidValueError("fleet", None, allowed="the fleet that the worker is in")
    if grant.role != WORKER and grant.worker is not None:
        raise errors.InvalidValueError("worker", grant.worker, allowed="only with role worker")
    if grant.role == ADMIN and grant.fleet is not None:
        raise errors.InvalidValueError("fleet", grant.fleet, allowed="none: admins see every fleet")


def _audit(conn: Connection, token: Token, action: str, *, act: Act) -> None:
    audit_store.append(
        conn,
        actor=act.actor,
        action=action,
        target=token.name,
        reason=act.reason,
        detail={"role": token.role, "fleet": token.fleet, "worker": token.worker},
        now=act.now,
    )
