"""Asks every rank for its memory and adds the answers up. No torch."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

from worker.engine import clamps, reports
from worker.engine.api import MemorySample
from worker.engine.clamps import ClampSample
from worker.engine.group import Group

_NOTHING = MemorySample(resident_bytes=0, limit_bytes=None, flag_bytes={}, retained_by_length={})


class MemoryQuery:
    """The questions on their way and the last sample."""

    def __init__(self, num_ranks: int) -> None:
        """Nothing asked yet."""
        self.last = _NOTHING
        self._num_ranks = num_ranks
        self._number = 0
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._complete: asyncio.Future[None] | None = None
        self._lock = asyncio.Lock()

    async def asked(self, group: Group, *, timeout_s: float) -> MemorySample:
        """A fresh sample; the last one if a rank does not answer, as when the group dies."""
        async with self._lock:
            self._number += 1
            self._answers = {}
            self._complete = asyncio.get_running_loop().create_future()
            for rank in range(self._num_ranks):
                group.send(rank, reports.MEMORY, query=self._number)
            try:
                async with asyncio.timeout(timeout_s):
                    await self._complete
            except TimeoutError:
                return self.last
            self.last = summed(self._answers.values())
            return self.last

    def answered(self, rank: int, fields: Mapping[str, Any]) -> None:
        """Take the answer of one rank; one to an older question is dropped."""
        if fields["query"] != self._number:
            return
        self._answers[rank] = fields
        if len(self._answers) == self._num_ranks and self._complete and not self._complete.done():
            self._complete.set_result(None)


def summed(answers: Any) -> MemorySample:
    """The sample of the group from the answers of its ranks."""
    flag_bytes: Counter[str] = Counter()
    retained: Counter[int] = Counter()
    resident_bytes, num_graphs, limits = 0, 0, []
    clamped: list[ClampSample | None] = []
    for answer in answers:
        resident_bytes += answer["resident_bytes"]
        num_graphs = max(num_graphs, answer["num_graphs"])
        limits.append(answer["limit_bytes"])
        flag_bytes.update(answer["flag_bytes"])
        clamped.append(clamps.from_fields(answer.get("clamps")))
        retained.update({int(k): v for k, v in answer["retained_by_length"].items()})
    return MemorySample(
        resident_bytes=resident_bytes,
        limit_bytes=None if None in limits else sum(limits),
        flag_bytes=dict(flag_bytes),
        retained_by_length=dict(retained),
        num_graphs=num_graphs,
        clamps=clamps.merged(clamped),
    )
