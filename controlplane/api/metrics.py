"""`/metrics` for Prometheus: what the store has counted, and what this process has seen.

Counts from the store are the same in every replica and survive a restart; the others begin at zero
with each process. No label holds what a caller can choose.
"""

import platform
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from importlib import metadata
from typing import Final

from fastapi import FastAPI, Request
from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from controlplane.api import metric_families
from controlplane.api.context import Context
from controlplane.api.metric_families import PREFIX, gauge
from controlplane.store import fleet_counts
from controlplane.store.fleet_counts import OTHER, FleetCounts

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
# Several Prometheus servers that scrape at once read the store once.
KEPT_FOR: Final = timedelta(seconds=2)
# However large the store has become, reading it takes at most a tenth of the time.
KEPT_TIMES: Final = 10
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Held open on purpose: how long these take says nothing of how fast we are.
HELD_ROUTES: Final = frozenset({"/v1/fleets/{fleet}/workers/{worker}/desired", "/events"})
UNMATCHED: Final = "_unmatched"
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_HELD: Final = {"worker": "desired", "canaries": "events"}


class Receipt(StrEnum):
    """What became of a record that was sent."""

    NEW = "new"
    REPEATED = "repeated"
    REFUSED = "refused"  # it cannot be right, or is of no known process
    UNREADABLE = "unreadable"  # it is not what the contract says


@dataclass(frozen=True, slots=True)
class _Kept:
    counts: FleetCounts
    read_s: float
    until: datetime


class Metrics:
    """The measures of one application; it has a registry of its own and shares nothing."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lock = threading.Lock()
        self._kept: _Kept | None = None
        ProcessCollector(registry=self.registry)
        self._requests = Counter(
            PREFIX + "http_requests",
            "Requests that were answered, by this process.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._durations = Histogram(
            PREFIX + "http_request_duration_seconds",
            "Time to the first byte of an answer, without calls that are held open on purpose.",
            ("method", "route"),
            buckets=_BUCKETS_S,
            registry=self.registry,
        )
        self._records = Counter(
            PREFIX + "records_received",
            "Records that were sent to this process, by what became of them.",
            ("result",),
            registry=self.registry,
        )
        for receipt in Receipt:
            self._records.labels(receipt.value)

    def count_records(self, receipt: Receipt, number: int) -> None:
        """Count records that were sent here."""
        self._records.labels(receipt.value).inc(number)

    def count_request(self, scope: Scope, *, status: int, took_s: float) -> None:
        """Count a request by its route's template, never by its path."""
        route = getattr(scope.get("route"), "path", UNMATCHED)
        method = scope["method"] if scope["method"] in METHODS else OTHER
        self._requests.labels(method, route, f"{status // 100}xx").inc()
        if route not in HELD_ROUTES:
            self._durations.labels(method, route).observe(took_s)

    def exposition(self, here: Context) -> bytes:
        """Everything in Prometheus' text format, version 0.0.4."""
        return generate_latest(_Scrape(self, here))

    def seen(self, here: Context) -> tuple[FleetCounts, float]:
        """Counts of the store, at most seconds old, and the seconds that reading them took."""
        with self._lock:  # whoever comes meanwhile waits for the same read
            now = here.clock.now()
            if self._kept is None or now >= self._kept.until or now < self._kept.until - _longest():
                self._kept = _read(here)
            return self._kept.counts, self._kept.read_s


class RequestMetrics:
    """Counts every answer, also those of the parts in front of the routes."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on, and count how it was answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        clock = scope["app"].state.context.clock
        began = clock.monotonic()
        status = 0

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                took_s = max(0.0, clock.monotonic() - began)
                self._metrics.count_request(scope, status=status, took_s=took_s)
            await send(message)

        try:
            await self._app(scope, receive, counted)
        except Exception:
            # What nobody caught is answered with 500, outside of here.
            if not status:
                took_s = max(0.0, clock.monotonic() - began)
                self._metrics.count_request(scope, status=500, took_s=took_s)
            raise


def install(app: FastAPI) -> None:
    """Measure `app`; to be called after every other middleware was added, to be the outermost."""
    app.state.metrics = Metrics()
    app.add_middleware(RequestMetrics, metrics=app.state.metrics)


def metrics_of(request: Request) -> Metrics:
    """The measures that `install` put there."""
    metrics: Metrics = request.app.state.metrics
    return metrics


class _Scrape(Collector):
    """One answer: the store's counts, and this process."""

    def __init__(self, metrics: Metrics, here: Context) -> None:
        self._metrics = metrics
        self._here = here

    def collect(self) -> Iterator[Metric]:
        counts, read_s = self._metrics.seen(self._here)
        yield from metric_families.of_counts(counts, now=self._here.clock.now())
        yield gauge("store_read_seconds", "Time that reading these counts took.", read_s)
        yield from _of_process(self._here)
        for metric in self._metrics.registry.collect():
            # When a counter began is for another format; here it would be a series of its own.
            created = f"{metric.name}_created"
            metric.samples = [one for one in metric.samples if one.name != created]
            yield metric


def _read(here: Context) -> _Kept:
    now, began = here.clock.now(), here.clock.monotonic()
    with here.database.read() as conn:
        counts = fleet_counts.read(conn, now=now)
    read_s = max(0.0, here.clock.monotonic() - began)
    kept_for = min(max(KEPT_FOR, timedelta(seconds=KEPT_TIMES * read_s)), _longest())
    return _Kept(counts=counts, read_s=read_s, until=here.clock.now() + kept_for)


def _longest() -> timedelta:
    # Also how far a clock may be set back before the counts are read anew.
    return timedelta(minutes=1)


def _of_process(here: Context) -> Iterator[Metric]:
    build = GaugeMetricFamily(
        PREFIX + "build_info", "Always 1; which release this is.", labels=("version", "python")
    )
    build.add_metric((metadata.version("steadyframe"), platform.python_version()), 1)
    yield build
    held = GaugeMetricFamily(
        PREFIX + "held_calls",
        "Calls that are held open by this process: of workers, and of pages.",
        labels=("kind",),
    )
    waiting = here.signals.num_waiting_by_kind()
    for kind, shown in _HELD.items():
        held.add_metric((shown,), waiting.get(kind, 0))
    yield held
    yield gauge(
        "judge_tick_age_seconds",
        "Time since this process judged canaries, or began. Absent: it only answers requests.",
        _tick_age_s(here),
    )


def _tick_age_s(here: Context) -> float | None:
    if not here.settings.is_reconciling:
        return None
    return (here.clock.now() - (here.last_tick_at() or here.started_at)).total_seconds()
