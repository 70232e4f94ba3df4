"""How long each worker has been silent, in time that somebody has looked.

Wall time may jump, and a control plane may be away itself: neither is silence of a worker.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from controlplane.domain.fleet import Worker


@dataclass(frozen=True, slots=True)
class _Heard:
    last_seen_at: datetime  # receipt
    at: timedelta  # when that was first seen, on the clock of the looks


class Silence:
    """Counts at most two ticks between two looks; a new controller begins to count anew."""

    def __init__(self, *, tick: timedelta) -> None:
        self._most = 2 * tick
        self._looked_at: datetime | None = None
        self._counted = timedelta(0)
        self._heard: dict[str, Mapping[str, _Heard]] = {}

    def look(self, now: datetime) -> None:
        """Let the clock go on; one set back stands still."""
        if self._looked_at is not None:
            self._counted += min(max(now - self._looked_at, timedelta(0)), self._most)
        self._looked_at = now

    def of(self, fleet: str, workers: Iterable[Worker]) -> Mapping[str, timedelta]:
        """The silence of these workers of the fleet, by id; others of it are forgotten."""
        before = self._heard.get(fleet, {})
        heard: dict[str, _Heard] = {}
        for worker in workers:
            known = before.get(worker.id)
            is_news = known is None or known.last_seen_at != worker.last_seen_at
            fresh = _Heard(worker.last_seen_at, self._counted)
            heard[worker.id] = fresh if known is None or is_news else known
        self._heard[fleet] = heard
        return {worker_id: self._counted - one.at for worker_id, one in heard.items()}
