"""Drops what has served its purpose: repeats that can no longer come, answers nobody awaits.

Sessions, transitions, decisions and the audit log are the record; they are never dropped here.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from controlplane.store import idempotency as idempotency_store
from controlplane.store import leader as leader_store
from controlplane.store import receipts as receipt_store
from controlplane.store import sessions as session_store
from controlplane.store.transaction import Database

EVERY = timedelta(hours=1)
# A worker whose spool comes later than that repeats only what the sessions themselves refuse.
_REPEATS_FOR = timedelta(hours=48)
_ANSWERS_FOR = timedelta(hours=24)


class RetentionReconciler:
    """Looks once an hour, at the first tick of it; forgetting twice is harmless."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked_at: datetime | None = None

    def beats(self, now: datetime, *, epoch: int) -> Iterator[Callable[[], None]]:
        """The beats of one tick: one each hour, else none."""
        if self._looked_at is not None and now - self._looked_at < EVERY:
            return
        self._looked_at = now
        yield lambda: self._forget(now, epoch)

    def _forget(self, now: datetime, epoch: int) -> None:
        with self._database.write() as conn:
            leader_store.require(conn, epoch=epoch)
            session_store.forget(conn, before=now - _REPEATS_FOR)
            receipt_store.forget(conn, before=now - _REPEATS_FOR)
            idempotency_store.forget(conn, before=now - _ANSWERS_FOR)
