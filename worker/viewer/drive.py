"""Drives a worker with one synthetic session after another; several workers by several calls.

seen = asyncio.run(drive.drive("ws://127.0.0.1:9000", plan, on_seen=print))
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from worker.viewer import session
from worker.viewer.script import Line, Pause
from worker.viewer.session import Ask, BusyError, Seen, ViewerError

# A worker between two sessions is busy for a moment; one that drains or restarts for longer.
FIRST_RETRY_S = 0.1
LONGEST_RETRY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sessions to drive through one worker. The lengths are taken in turn, the seeds drawn."""

    num_sessions: int | None  # None: until cancelled
    seconds: float
    lengths: Sequence[int]
    seed: int = 0
    is_synthetic: bool = True
    prompt: str | None = None  # of every session, instead of a length
    lines: Sequence[Line] = ()
    pauses: Sequence[Pause] = ()
    num_start_chunks: int = 1
    receive_bytes: int | None = None
    patience_s: float = 60.0  # how long to ask again while a worker is busy or away


@dataclass(slots=True, kw_only=True)
class Summary:
    """What became of a plan."""

    seen: list[Seen] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)  # one for each session that never began


async def drive(
    url: str | Callable[[], str],
    plan: Plan,
    *,
    on_seen: Callable[[Seen], None] = lambda _seen: None,
) -> Summary:
    """Run the plan on one worker; `url` is asked for anew each time if it is a function.

    Sessions that fail are in the summary; only a request that the worker calls wrong raises.
    """
    randomness = random.Random(plan.seed)  # noqa: S311 - a repeatable load, not a secret
    summary = Summary()
    number = 0
    while plan.num_sessions is None or number < plan.num_sessions:
        ask = Ask(
            first_forward_length=_length(plan, number),
            prompt=plan.prompt,
            seed=randomness.getrandbits(31),
            seconds=plan.seconds,
            is_synthetic=plan.is_synthetic,
            lines=plan.lines,
            pauses=plan.pauses,
            num_start_chunks=plan.num_start_chunks,
            receive_bytes=plan.receive_bytes,
        )
        number += 1
        await _watch_patiently(url, ask, plan, summary=summary, on_seen=on_seen)
    return summary


def _length(plan: Plan, number: int) -> int | None:
    return None if plan.prompt else plan.lengths[number % len(plan.lengths)]


async def _watch_patiently(
    url: str | Callable[[], str],
    ask: Ask,
    plan: Plan,
    *,
    summary: Summary,
    on_seen: Callable[[Seen], None],
) -> None:
    """One session; asks again, with longer and longer waits, while the worker is busy or away."""
    retry_s = FIRST_RETRY_S
    waited_s = 0.0
    while True:
        try:
            seen = await session.watch(url() if callable(url) else url, ask)
        except (BusyError, ViewerError, OSError) as error:
            if waited_s >= plan.patience_s:
                summary.errors.append(str(error))
                return
            await asyncio.sleep(retry_s)
            waited_s += retry_s
            retry_s = min(retry_s * 2, LONGEST_RETRY_S)
            continue
        summary.seen.append(seen)
        on_seen(seen)
        return
