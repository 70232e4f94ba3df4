"""Preflight on this worker: the variant over many first-forward lengths, then the way back.

Run on an engine without a session. Nothing here knows the control plane: whoever runs it says what
to try, how to flip, and what becomes of the findings.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from controlplane.contract import vocabulary
from worker.engine.api import Engine, Flags

# The first forward and a steady step: what a kernel keeps for a length is there after the first.
NUM_CHUNKS = 2


class Flip(Protocol):
    """How whoever runs a trial changes the flags."""

    async def __call__(self, flags: Flags) -> bool:
        """Ask for `flags`; whether every rank runs them, once that is known."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What to try."""

    id: str
    flag: str  # under test
    flags: Flags
    back_to: Flags
    lengths: Sequence[int]
    seed: int
    retained_at_most: int  # bytes for each length; more for two of them ends it early


@dataclass(slots=True, kw_only=True)
class Findings:
    """What was found so far; None: it did not come to that."""

    retained_bytes: dict[int, int] = field(default_factory=dict)  # by first-forward length
    flag_bytes_before: int = 0
    rollback_ms: float | None = None
    flag_bytes_left: int | None = None
    detail: str = ""  # why it stopped short


async def run(
    engine: Engine,
    trial: Trial,
    *,
    flip: Flip,
    findings: Findings,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Carry `trial` out and write what is found into `findings`, as it is found.

    A group that dies leaves them as they are. When it is over the engine runs `back_to`, unless
    that was refused; whoever cancels it has to flip back.
    """
    findings.flag_bytes_before = await _flag_bytes(engine, trial.flag)
    if await flip(trial.flags):
        await _run_lengths(engine, trial, findings)
    else:
        findings.detail = "the flags of the probe did not take effect"
    began_at = clock()
    if not await flip(trial.back_to):
        findings.detail = "the flags of before did not take effect again"
        return
    if findings.retained_bytes:
        findings.rollback_ms = (clock() - began_at) * 1000
        findings.flag_bytes_left = await _flag_bytes(engine, trial.flag)


async def _run_lengths(engine: Engine, trial: Trial, findings: Findings) -> None:
    for length in trial.lengths:
        if not await _run_length(engine, trial, length):
            findings.detail = f"the stream ended early at length {length}"
            return
        memory = await engine.memory()
        findings.retained_bytes[length] = memory.retained_by_length.get(length, 0)
        kept = [n for n in findings.retained_bytes.values() if n > trial.retained_at_most]
        if len(kept) >= vocabulary.LEAST_RETAINED_LENGTHS:
            return


async def _run_length(engine: Engine, trial: Trial, length: int) -> bool:
    """Whether all chunks came."""
    stream = engine.chunks(
        f"{trial.id}-{length}"[:64], first_forward_length=length, seed=trial.seed
    )
    num_chunks = 0
    async with aclosing(stream) as chunks:
        async for _ in chunks:
            num_chunks += 1
            if num_chunks == NUM_CHUNKS:
                return True
    return False


async def _flag_bytes(engine: Engine, flag: str) -> int:
    return (await engine.memory()).flag_bytes.get(flag, 0)
