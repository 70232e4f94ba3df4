"""Who controls: one holder at a time, by an epoch that only rises and fences those before."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Connection, select, update

from controlplane.domain.errors import ConflictError
from controlplane.store import dialect
from controlplane.store.tables import leader

_NAME: Final = "controller"
# Clocks of two controllers differ by less, or one of them is wrong.
MAX_SKEW: Final = timedelta(minutes=1)


class LeadershipLostError(ConflictError):
    """Another controller leads by now; what was decided under the old epoch is not recorded."""

    def __init__(self, epoch: int) -> None:
        super().__init__(f"epoch {epoch} is over: another controller leads")
        self.epoch = epoch


def acquire(conn: Connection, *, holder: str, now: datetime, ttl: timedelta) -> int | None:
    """Lead until `now + ttl`: the epoch, or None while another holder's time runs.

    The present holder keeps its epoch, so this renews as well.
    """
    dialect.serialise(conn, "leader")
    row = conn.execute(select(leader).where(leader.c.name == _NAME)).first()
    is_mine = row is not None and row.holder == holder
    # A time that no `ttl` reaches was written by a clock in the future, or ours was set back: to
    # wait for it would leave every canary without a judge. The epoch fences whoever it was.
    is_held = row is not None and now < row.expires_at <= now + ttl + MAX_SKEW
    if is_held and not is_mine:
        return None
    epoch = 1 if row is None else row.epoch + (0 if is_mine and is_held else 1)
    held = {"name": _NAME, "holder": holder, "epoch": epoch, "expires_at": now + ttl}
    dialect.upsert(conn, leader, held)
    return epoch


def renew(conn: Connection, *, holder: str, epoch: int, now: datetime, ttl: timedelta) -> bool:
    """Lead until `now + ttl`, if nobody else has led since. Returns whether that is so."""
    mine = (leader.c.name == _NAME) & (leader.c.holder == holder) & (leader.c.epoch == epoch)
    return conn.execute(update(leader).where(mine).values(expires_at=now + ttl)).rowcount == 1


def release(conn: Connection, *, holder: str, now: datetime) -> None:
    """Stop leading, so that the next need not wait."""
    mine = (leader.c.name == _NAME) & (leader.c.holder == holder)
    conn.execute(update(leader).where(mine).values(expires_at=now))


def vacate(conn: Connection, *, now: datetime) -> None:
    """End whoever's leadership; only for who knows by other means that no other controller runs."""
    conn.execute(update(leader).where(leader.c.name == _NAME).values(expires_at=now))


def require(conn: Connection, *, epoch: int) -> None:
    """Hold the leadership of `epoch` until the transaction ends.

    Raises:
        LeadershipLostError: another epoch has begun.
    """
    current = select(leader.c.epoch).where(leader.c.name == _NAME)
    if conn.scalars(dialect.lock_row(conn, current)).first() != epoch:
        raise LeadershipLostError(epoch)
