"""Looks for desired states that another process changed, once for all calls that are held here.

A change made in this process is signalled at once; this is for the others, and for a lost signal.
"""

import asyncio
from collections.abc import Mapping

import structlog
from starlette.concurrency import run_in_threadpool

from controlplane.api.context import Context
from controlplane.services import workers

log: structlog.stdlib.BoundLogger = structlog.get_logger(__name__)


async def poll(context: Context) -> None:
    """Wake the held calls whose worker is told something else, every `poll_s`, until cancelled."""
    known: Mapping[str, int] = {}
    while True:
        await asyncio.sleep(context.settings.poll_s)
        if context.signals.num_waiting() == 0:
            continue
        try:
            known = await look(context, known)
        except Exception:
            # The database may be away; the next look is in seconds.
            log.warning("poll_failed", exc_info=True)


async def look(context: Context, known: Mapping[str, int]) -> Mapping[str, int]:
    """The generation of each worker now; those that differ from `known` are signalled."""
    found = await run_in_threadpool(_generations, context)
    for worker_id, generation in found.items():
        if known.get(worker_id) != generation:
            context.signals.notify(f"worker:{worker_id}")
    return found


def _generations(context: Context) -> Mapping[str, int]:
    with context.database.read() as conn:
        return workers.generations(conn)
