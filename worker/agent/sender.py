"""Carries the spool to the control plane, in order; the cursor moves on arrival only."""

import json
import logging
import random
import threading
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from worker.agent import otlp, records
from worker.agent.control import Answer, UnreachableError
from worker.agent.records import Written
from worker.agent.retry import Backoff
from worker.agent.spool import Entry, Spool

MAX_BATCH = 256
LINGER_S = 0.02
MAX_RETRY_AFTER_S = 60.0
REJECTED_NAME = "rejected.jsonl"
# Enough to see what is wrong; a control plane that rejects everything must not fill the disk.
MAX_REJECTED_BYTES = 1024 * 1024

logger = logging.getLogger(__name__)


class Delivery(StrEnum):
    """What one attempt came to."""

    IDLE = "idle"  # nothing to deliver
    DELIVERED = "delivered"
    NARROWED = "narrowed"  # refused as a whole: the next attempt takes half
    SET_ASIDE = "set_aside"  # one record was refused and is kept in a file
    LATER = "later"  # no answer, or one that asks for patience


class Sender:
    """One batch at a time; `attempt` for tests and drains, `run` for the agent's thread."""

    def __init__(
        self,
        spool: Spool,
        *,
        post: Callable[[bytes], Answer],
        folder: Path,
        randomness: random.Random,
    ) -> None:
        self._spool = spool
        self._post = post
        self._rejected_path = folder / REJECTED_NAME
        self._backoff = Backoff(randomness)
        self._batch_limit = MAX_BATCH
        self._is_awaited = threading.Event()
        self._is_urgent = threading.Event()
        self._retry_after_s: float | None = None

    def nudge(self, is_urgent: bool) -> None:  # noqa: FBT001 - a callback of one argument
        """A record is in the spool; an urgent one is not kept waiting for company."""
        if is_urgent:
            self._is_urgent.set()
        self._is_awaited.set()

    def run(self, stopping: threading.Event) -> None:
        """Deliver until `stopping` is set; what is then left stays in the spool."""
        while not stopping.is_set():
            match self._attempt_or_later():
                case Delivery.IDLE:
                    self._is_awaited.wait(timeout=1.0)
                    self._is_awaited.clear()
                    self._is_urgent.wait(timeout=LINGER_S)
                    self._is_urgent.clear()
                case Delivery.LATER:
                    stopping.wait(self._retry_after_s or self._backoff.next_s())
                case Delivery.DELIVERED | Delivery.NARROWED | Delivery.SET_ASIDE:
                    self._backoff.reset()

    def _attempt_or_later(self) -> Delivery:
        try:
            return self.attempt()
        except OSError as error:
            # The disk is full: what was delivered is delivered again when the cursor can move.
            logger.error("delivery_postponed reason=%s", error)  # noqa: TRY400
            return Delivery.LATER

    def attempt(self) -> Delivery:
        """Post the oldest undelivered records once and draw the consequence."""
        entries = self._spool.pending(limit=self._batch_limit)
        if not entries:
            return Delivery.IDLE
        batch = records.all_written(entries)
        if len(batch) < len(entries):
            return self._narrow(entries, why="not a spooled record")
        return self._deliver(entries, [written for _, written in batch])

    def _deliver(self, entries: list[Entry], batch: list[Written]) -> Delivery:
        self._retry_after_s = None
        try:
            answer = self._post(otlp.encode(batch))
        except UnreachableError as error:
            logger.debug("delivery_postponed reason=%s", error)
            return Delivery.LATER
        match answer.status:
            case 200:
                return self._confirm(entries, answer)
            case 400 | 413:
                return self._narrow(entries, why=f"refused with {answer.status}")
            case _:
                # Whatever else is said (429, 5xx, a token on its way), patience loses nothing.
                logger.warning("delivery_postponed status=%d", answer.status)
                if answer.retry_after_s is not None:
                    self._retry_after_s = min(answer.retry_after_s, MAX_RETRY_AFTER_S)
                return Delivery.LATER

    def _confirm(self, entries: list[Entry], answer: Answer) -> Delivery:
        num_rejected, why = otlp.rejection(answer.body)
        if num_rejected:
            # OTLP: a partial success must not be repeated, and does not say which records it means.
            logger.warning("records_rejected num_records=%d reason=%s", num_rejected, why)
        self._spool.confirm(entries[-1].number)
        self._batch_limit = min(self._batch_limit * 2, MAX_BATCH)
        return Delivery.DELIVERED

    def _narrow(self, entries: list[Entry], *, why: str) -> Delivery:
        if len(entries) > 1:
            self._batch_limit = len(entries) // 2
            return Delivery.NARROWED
        self._set_aside(entries[0], why=why)
        self._spool.confirm(entries[0].number)
        return Delivery.SET_ASIDE

    def _set_aside(self, entry: Entry, *, why: str) -> None:
        logger.error("record_set_aside number=%d reason=%s", entry.number, why)
        size_bytes = self._rejected_path.stat().st_size if self._rejected_path.exists() else 0
        if size_bytes + len(entry.payload) > MAX_REJECTED_BYTES:
            return
        payload = entry.payload.decode(errors="replace")
        line = {"number": entry.number, "why": why, "payload": payload}
        with self._rejected_path.open("a") as file:
            file.write(json.dumps(line) + "\n")
