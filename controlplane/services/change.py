"""What every change of a person has in common: who, why, what it did in words; and only once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from controlplane.domain import digest
from controlplane.ports import NewId
from controlplane.store import idempotency as idempotency_store
from controlplane.store.transaction import Connection


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One person's (or token's) doing, at one time."""

    actor: str
    reason: str
    now: datetime
    new_id: NewId


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done, or would be: a dry run makes the same one and rolls it back."""

    subject: Any  # the value as it stands now
    effects: Sequence[str]  # sentences for a person, the most important first
    woken: Sequence[str] = ()  # ids of workers whose desired state is another now
    secret: Mapping[str, str] = field(default_factory=dict, repr=False)  # shown once, never kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """A request that is to be done once, however often it is sent."""

    principal: str  # two people may think of the same key
    key: str
    request: Any  # what the key stands for, as JSON can carry it

    @property
    def stored_key(self) -> str:
        """The key as it is kept."""
        return f"{self.principal}:{self.key}"


def earlier_answer(conn: Connection, once: Once, *, now: datetime) -> Any | None:
    """The answer that was given before, or None: it is new, and claimed by this transaction.

    Raises:
        ConflictError: the key was used for another request.
    """
    return idempotency_store.claim(
        conn, key=once.stored_key, request_digest=digest.digest(once.request), now=now
    )


def keep_answer(conn: Connection, once: Once, answer: Any) -> None:
    """Keep the answer to a request that was claimed."""
    idempotency_store.keep(conn, key=once.stored_key, response=answer)
