"""What the store has counted, as Prometheus metrics: names, labels and meanings in one place.

Pure. Closed sets of labels are filled with zeros for every fleet there is: a rate over a series
that appears with its first event would miss that event.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import accumulate, pairwise
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from controlplane.contract.vocabulary import Outcome, Reason
from controlplane.domain.canary import Phase
from controlplane.domain.desired import Layer
from controlplane.domain.verdict import Verdict
from controlplane.store.fleet_counts import ROLLBACKS, TRAFFIC, Counts, FleetCounts
from controlplane.store.worker_paths import Path, State

PREFIX: Final = "steadyframe_"
# Containment takes part of a second to seconds, or the two minutes until a lease has lapsed;
# verification may wait for a session to end.
ROLLBACK_BUCKETS_S: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
# `lost` is the worker's failure as well; counts by day do not tell the two apart.
_OUTCOMES: Final = (Outcome.COMPLETED, Outcome.FAILED, Outcome.VIEWER_LIMITED)
_STRATUM: Final = ("fleet", "hardware")


def of_counts(counts: FleetCounts, *, now: datetime) -> Iterator[Metric]:
    """Every metric that comes from the store."""
    yield from _of_fleets(counts, now=now)
    yield from _of_workers(counts)
    yield from _of_sessions(counts)
    yield from _of_canaries(counts)
    yield gauge("database_size_bytes", "Size of the database.", counts.database_bytes)
    until = counts.leader_until
    yield gauge(
        "leader_lease_seconds",
        "Time left to the leading controller; below 0: nobody judges. Absent: nobody ever led.",
        None if until is None else (until - now).total_seconds(),
    )


def gauge(name: str, meaning: str, value: float | None) -> Metric:
    """One number; None: there is none, which is not the same as 0."""
    return GaugeMetricFamily(PREFIX + name, meaning, value=value)


def _of_fleets(counts: FleetCounts, *, now: datetime) -> Iterator[Metric]:
    known = _keys(counts.fleets)
    yield _gauges(
        "fleet_stopped", "1 while the line is stopped.", ("fleet",), counts.stopped, known
    )
    yield _gauges(
        "fleet_enforcing", "1 in mode enforce, 0 in observe.", ("fleet",), counts.enforcing, known
    )
    newest = GaugeMetricFamily(
        PREFIX + "newest_record_age_seconds",
        "Time since the newest record of any worker's present process. Absent: none came yet.",
        labels=("fleet",),
    )
    for fleet, at in sorted(counts.newest_record_at.items()):
        newest.add_metric((fleet,), (now - at).total_seconds())
    yield newest


def _of_workers(counts: FleetCounts) -> Iterator[Metric]:
    yield _gauges(
        "workers",
        "Workers by where they stand; each in one state.",
        (*_STRATUM, "state"),
        counts.states,
        _with(counts.strata, State),
    )
    yield _gauges(
        "workers_on_path",
        "Workers by what their ranks last reported that they run; each on one path.",
        (*_STRATUM, "path"),
        counts.paths,
        _with(counts.strata, Path),
    )
    yield _counters(
        "records_ingested",
        "Records that were kept, repeats not counted.",
        _STRATUM,
        counts.records,
        counts.strata,
    )
    yield _gauges(
        "records_missing",
        "Records below the highest number of their process that have not come.",
        _STRATUM,
        counts.missing,
        counts.strata,
    )
    yield _counters(
        "flips",
        "Changes of what a worker is told to run, by the layer that won.",
        ("fleet", "layer"),
        counts.flips,
        _with(_keys(counts.fleets), Layer),
    )
    yield _counters(
        "breaker_trips",
        "Times that a worker went to its fallback by itself.",
        ("fleet", "reason"),
        counts.trips,
        _with(_keys(counts.fleets), Reason),
    )


def _of_sessions(counts: FleetCounts) -> Iterator[Metric]:
    labels = (*_STRATUM, "traffic")
    by_traffic = _with(counts.strata, TRAFFIC.values())
    yield _gauges(
        "sessions_open",
        "Sessions without an end yet.",
        ("fleet",),
        counts.open_sessions,
        _keys(counts.fleets),
    )
    yield _counters(
        "sessions_ended",
        "Ended sessions; those that were lost are among the failed. Imported ones are not counted.",
        ("fleet", "outcome", "traffic"),
        counts.ended,
        _with(_with(_keys(counts.fleets), _OUTCOMES), TRAFFIC.values()),
    )
    yield _counters(
        "sessions_rated",
        "Ended sessions whose frame rate counts: the total of the slow rates.",
        labels,
        counts.rated,
        by_traffic,
    )
    yield _counters(
        "sessions_slow",
        "Rated sessions at 24.0 frames a second or less.",
        labels,
        counts.slow,
        by_traffic,
    )
    yield _counters(
        "sessions_very_slow",
        "Rated sessions at 23.5 frames a second or less; they are among the slow ones.",
        labels,
        counts.very_slow,
        by_traffic,
    )


def _of_canaries(counts: FleetCounts) -> Iterator[Metric]:
    known = _keys(counts.fleets)
    yield _gauges(
        "canaries",
        "Canaries by phase, those that are over included.",
        ("fleet", "phase"),
        counts.canaries,
        _with(known, Phase),
    )
    yield _counters(
        "decisions",
        "Judgements that were recorded, by their verdict.",
        ("fleet", "verdict"),
        counts.decisions,
        _with(known, Verdict),
    )
    yield _counters(
        "canary_rollbacks",
        "Canaries that began to roll back, by what made them.",
        ("fleet", "event"),
        counts.rollbacks,
        _with(known, ROLLBACKS),
    )
    yield _histogram(
        "canary_containment_seconds",
        "From the start of a rollback until no worker ran the variant.",
        counts.contained_after,
        counts.fleets,
    )
    yield _histogram(
        "canary_verification_seconds",
        "From the start of a rollback until nothing of the variant was left.",
        counts.verified_after,
        counts.fleets,
    )


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    name: str,
    meaning: str,
    labels: Sequence[str],
    counts: Counts,
    known: Iterable[tuple[str, ...]],
) -> Metric:
    """The counts under every key there is, and 0 under those that could be."""
    family = kind(PREFIX + name, meaning, labels=labels)
    for key in sorted({*known, *counts}):
        family.add_metric(key, counts.get(key, 0))
    return family


_gauges = partial(_family, GaugeMetricFamily)
_counters = partial(_family, CounterMetricFamily)


def _histogram(
    name: str,
    meaning: str,
    durations: Mapping[str, Sequence[timedelta]],
    fleets: Iterable[str],
) -> Metric:
    family = HistogramMetricFamily(PREFIX + name, meaning, labels=("fleet",))
    for fleet in sorted({*fleets, *durations}):
        lasted_s = [one.total_seconds() for one in durations.get(fleet, ())]
        family.add_metric((fleet,), buckets=_buckets(lasted_s), sum_value=sum(lasted_s))
    return family


def _buckets(lasted_s: Sequence[float]) -> list[tuple[str, float]]:
    bounds = (0.0, *ROLLBACK_BUCKETS_S, float("inf"))
    inside = [
        sum(low < one <= high or (one == 0 and low == 0) for one in lasted_s)
        for low, high in pairwise(bounds)
    ]
    names = [*(str(bound) for bound in ROLLBACK_BUCKETS_S), "+Inf"]
    return [(name, float(num)) for name, num in zip(names, accumulate(inside), strict=True)]


def _keys(names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((name,) for name in names)


def _with(keys: Iterable[tuple[str, ...]], words: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    listed = tuple(str(word) for word in words)
    return tuple((*key, word) for key in keys for word in listed)
