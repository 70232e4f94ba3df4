"""What a scrape says, read back with Prometheus' own parser."""

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tests.api.control_plane import ControlPlane, bearer


def families(plane: ControlPlane) -> dict[str, Metric]:
    """Every metric by the name that a query uses."""
    return {name_of(one): one for one in text_string_to_metric_families(text(plane))}


def text(plane: ControlPlane, *, token: str | None = None) -> str:
    """The answer to a scrape."""
    headers = bearer(token) if token else plane.admin
    answer = plane.client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.text


def name_of(metric: Metric) -> str:
    """Its name, with the suffix that the parser takes off counters."""
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


def value(plane: ControlPlane, name: str, **labels: str) -> float:
    """The one sample of that name and those labels."""
    (found,) = [
        sample.value
        for metric in text_string_to_metric_families(text(plane))
        for sample in metric.samples
        if sample.name == name and sample.labels == labels
    ]
    return float(found)


def samples(plane: ControlPlane) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and labels of every series."""
    for metric in text_string_to_metric_families(text(plane)):
        for sample in metric.samples:
            yield sample.name, sample.labels
