"""Requests for flags on their way through the engine, and what every rank runs.

The engine ignores a request whose number is not newer. Flags change between the sessions of one
generation, so the numbers are our own, and each is translated back to the generation behind it.
"""

import asyncio
from collections.abc import Mapping

from controlplane.contract import vocabulary
from controlplane.contract.messages import RankReport
from worker.agent.intent import Wanted
from worker.engine.api import Effective, Engine, FlagsRefused

# Answers come in order; a translation older than this many requests is no longer asked for.
MAX_REMEMBERED = 64


class Flips:
    """What was asked of the engine and what it answered. Used from one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._number = 0
        self._generations: dict[int, int] = {}
        self._requested: Wanted | None = None
        self._effective: Mapping[str, str] = {}
        self._is_refused = False
        self._changed = asyncio.Condition()

    @property
    def effective(self) -> Mapping[str, str]:
        """What every rank runs; empty before the first group is up."""
        return self._effective

    def request(self, wanted: Wanted) -> None:
        """Ask the engine for `wanted`, unless that was the last thing asked.

        Also when only the generation is new: the ranks acknowledge it.
        """
        if wanted == self._requested:
            return
        number = self.next_number(wanted)
        self._engine.request_flags(wanted.flags, generation=number)

    def next_number(self, wanted: Wanted) -> int:
        """A number for a request, a start or a restart with `wanted`."""
        self._number += 1
        self._generations[self._number] = wanted.generation
        self._generations.pop(self._number - MAX_REMEMBERED, None)
        self._requested = wanted
        self._is_refused = False
        return self._number

    def generation_of(self, number: int) -> int:
        """The generation of the control plane behind a number of the engine."""
        return self._generations.get(number, 0)

    async def note_effective(self, effective: Effective) -> list[RankReport]:
        """Remember what every rank runs; returns their reports with the control plane's numbers."""
        async with self._changed:
            self._effective = dict(effective.flags)
            self._changed.notify_all()
        return [
            RankReport(
                rank=rank.rank,
                generation=self.generation_of(rank.generation),
                digest=rank.digest,
                step=rank.step,
                flag_bytes=dict(rank.flag_bytes),
            )
            for rank in effective.ranks
        ]

    async def note_refused(self, refused: FlagsRefused) -> None:
        """Let whoever waits for these flags go on without."""
        async with self._changed:
            self._is_refused = refused.generation == self._number
            self._changed.notify_all()

    async def wait_for(self, flags: Mapping[str, str], *, timeout_s: float) -> bool:
        """Wait until every rank runs `flags`; False if they are refused or it takes too long."""
        try:
            async with asyncio.timeout(timeout_s), self._changed:
                await self._changed.wait_for(lambda: self._runs(flags) or self._is_refused)
        except TimeoutError:
            return False
        return self._runs(flags)

    def _runs(self, flags: Mapping[str, str]) -> bool:
        """Whether every rank runs `flags`; a probe names only those it tries."""
        return bool(self._effective) and vocabulary.runs(self._effective, flags)
