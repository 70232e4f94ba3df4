"""What a scrape looks like: documented to the last label, readable, and bounded whatever comes."""

import asyncio
import itertools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controlplane.store import fleet_counts
from tests.api import otlp_bodies, scraped
from tests.api.control_plane import FLEET, ControlPlane, reporter

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"\| `([a-z_]+)` \| (gauge|counter|histogram) \| ([a-z, ]*?) ?\| (.+) \|")
NUM_HOSTILE = 50_000
_HEADERS = (
    b"user-agent",
    b"x-forwarded-for",
    b"referer",
    b"origin",
    b"traceparent",
    b"x-request-id",
    b"idempotency-key",
)


@pytest.fixture
def busy_plane(sqlite_plane: ControlPlane) -> ControlPlane:
    """A control plane in which every metric has a sample."""
    sqlite_plane.fleet("w-1")
    sqlite_plane.tick()
    record = otlp_bodies.record("session.started", session="s-1", seq=1)
    body = otlp_bodies.request(record, resource=reporter("w-1"))
    assert sqlite_plane.logs("w-1", body).status_code == 200
    context = sqlite_plane.parts.context
    judging = context.settings.model_copy(update={"is_reconciling": True})
    sqlite_plane.client.app.state.context = replace(context, settings=judging)
    return sqlite_plane


def _documented() -> dict[str, tuple[str, frozenset[str]]]:
    rows = [ROW.fullmatch(line) for line in DOCUMENT.read_text().splitlines()]
    found = [row for row in rows if row]
    documented = {row[1]: (row[2], frozenset(filter(None, row[3].split(", ")))) for row in found}
    assert len(documented) == len(found), "a metric is documented twice"
    return documented


def test_the_document_and_a_live_scrape_tell_the_same(busy_plane: ControlPlane) -> None:
    """Name, type and labels, in both directions."""
    exposed = {
        name: (metric.type, frozenset(metric.samples[0].labels) - {"le"})
        for name, metric in scraped.families(busy_plane).items()
    }

    assert exposed == _documented()


def test_every_row_of_the_document_is_read() -> None:
    """A row that the pattern does not fit would be compared with nothing."""
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]

    assert len(rows) == len(_documented())


def test_names_follow_the_conventions_of_prometheus(busy_plane: ControlPlane) -> None:
    units = ("_seconds", "_bytes", "_total", "_info")
    for name, metric in scraped.families(busy_plane).items():
        assert name.startswith(("steadyframe_", "process_"))
        assert metric.documentation
        assert (metric.type == "counter") == name.endswith("_total")
        assert not re.search(r"_(s|ms|minutes|kb|mb|percent)(_|$)", name)
        if metric.type == "histogram":
            assert name.endswith(units)


def test_histograms_add_up(busy_plane: ControlPlane) -> None:
    for name, metric in scraped.families(busy_plane).items():
        if metric.type != "histogram":
            continue
        series: dict[Any, list[tuple[float, float]]] = {}
        counts: dict[Any, float] = {}
        for one in metric.samples:
            key = tuple(sorted((k, v) for k, v in one.labels.items() if k != "le"))
            if one.name.endswith("_bucket"):
                series.setdefault(key, []).append((float(one.labels["le"]), one.value))
            elif one.name.endswith("_count"):
                counts[key] = one.value
        assert series, name
        for key, buckets in series.items():
            heights = [height for _, height in sorted(buckets)]
            assert heights == sorted(heights)
            assert max(buckets)[0] == math.inf
            assert heights[-1] == counts[key]


def test_the_parser_of_prometheus_reads_every_line(busy_plane: ControlPlane) -> None:
    text = scraped.text(busy_plane)
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]

    families = list(text_string_to_metric_families(text))

    assert sum(len(family.samples) for family in families) == len(lines)
    assert len({name for name, _ in scraped.samples(busy_plane)}) > len(families)
    assert "_created" not in text


def test_fifty_thousand_hostile_values_make_no_series(sqlite_plane: ControlPlane) -> None:
    """Whoever can reach the port must not be able to fill Prometheus' memory."""
    sqlite_plane.fleet("w-1")
    before = len(list(scraped.samples(sqlite_plane)))
    shapes = (
        ("GET", "/v1/fleets/h{}/workers/h{}", "cursor=h{}"),
        ("POST", "/v1/fleets/video/workers/h{}/registration", "h{}=h{}"),
        ("GET", "/v1/fleets/h{}/workers/h{}/desired", "incarnation=h{}&after=0"),
        ("GET", "/v1/canaries/h{}/decisions", "cursor=h{}&h{}"),
        ("GET", "/h{}/h{}", "h{}"),
        ("GET", "/static/h{}", "h{}=h{}"),
        ("H{}", "/v1/fleets", "h{}=h{}"),
        ("POST", "/v1/fleets/h{}/../metrics", "h{}=h{}"),
    )
    numbers = iter(range(NUM_HOSTILE))
    sent = [
        _request(*(part.format(*_numbers(numbers, part)) for part in shape), numbers=numbers)
        for _, shape in zip(range(NUM_HOSTILE // 10), itertools.cycle(shapes), strict=False)
    ]
    statuses = asyncio.run(_statuses(sqlite_plane, sent))

    assert next(numbers, None) is None, "not every value was sent"
    assert not any(status >= 500 for status in statuses)
    after = list(scraped.samples(sqlite_plane))
    # For each shape at most, and for the scrape before: a histogram of ten buckets and infinity,
    # with sum and count, and a counter.
    assert len(after) - before <= (len(shapes) + 1) * (10 + 3 + 1)
    assert not any(re.search(r"h\d", str(labels)) for _, labels in after)


def _request(method: str, path: str, query: str, *, numbers: Iterator[int]) -> dict[str, Any]:
    """One request; what is left of its ten values goes into headers that others label by."""
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [
            (b"host", b"localhost"),
            *((name, f"h{next(numbers)}".encode()) for name in _HEADERS),
        ],
        "client": ("127.0.0.1", 1),
        "server": ("localhost", 80),
    }


def _numbers(numbers: Iterator[int], part: str) -> list[int]:
    """As many new numbers as `part` has places for."""
    return list(itertools.islice(numbers, part.count("{}")))


async def _statuses(plane: ControlPlane, sent: Iterable[dict[str, Any]]) -> list[int]:
    """How each of these is answered without a token; straight to the application, to be quick."""
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    for scope in sent:
        await plane.client.app(scope, receive, send)
    return statuses


def test_hardware_that_workers_make_up_is_counted_together(sqlite_plane: ControlPlane) -> None:
    """A worker names its own hardware: the oldest keep their names, whatever comes later."""
    sqlite_plane.fleet("w-1")
    for number in range(30):
        sqlite_plane.clock.advance(seconds=1)
        sqlite_plane.register("w-2", hardware=f"a{number}", incarnation=f"life-{number}")

    labels = [one.get("hardware") for _, one in scraped.samples(sqlite_plane)]

    named = {one for one in labels if one is not None}
    assert len(named) <= fleet_counts.MAX_HARDWARE + 1
    assert {"cpu", fleet_counts.OTHER} <= named
    assert "a29" not in named
    labels_of_last = {"fleet": FLEET, "hardware": fleet_counts.OTHER, "state": "settling"}
    assert scraped.value(sqlite_plane, "steadyframe_workers", **labels_of_last) == 1


def test_fleets_beyond_the_bound_are_counted_together(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1")
    for number in range(fleet_counts.MAX_FLEETS + 20):
        sqlite_plane.done("/v1/fleets", name=f"a{number}")

    named = {one["fleet"] for _, one in scraped.samples(sqlite_plane) if "fleet" in one}

    assert len(named) <= fleet_counts.MAX_FLEETS + 1
    assert FLEET in named
