"""Evidence comes in over OTLP/HTTP: bounded, a worker's own, and told what was not kept."""

import gzip
import json
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from controlplane.contract import vocabulary
from tests.api import otlp_bodies
from tests.api.control_plane import FLEET, STACK, ControlPlane, bearer

FLAGS = {"fused_allreduce": "nccl"}


def _resource(worker: str = "w-1", **changes: str) -> dict[str, str]:
    return {
        "service.instance.id": f"life-of-{worker}",
        "steadyframe.fleet": FLEET,
        "steadyframe.worker": worker,
        "steadyframe.hardware": "cpu",
        "steadyframe.stack": vocabulary.stack_digest(STACK),
        **changes,
    }


def _session(*, fps: float = 24.5, outcome: str = "completed") -> list[LogRecord]:
    return [
        otlp_bodies.record("session.started", session="s-1", seq=1),
        otlp_bodies.record(
            "session.ended",
            session="s-1",
            seq=2,
            num_frames=4 + round(fps * 10),
            streamed_s=10.0,
            outcome=outcome,
        ),
    ]


def _rejected(content: bytes) -> tuple[int, str]:
    answer = ExportLogsServiceResponse.FromString(content)
    told = answer.partial_success
    return told.rejected_log_records, told.error_message


def test_a_session_that_ended_is_in_the_list_with_its_rate(plane: ControlPlane) -> None:
    plane.fleet("w-1")

    answer = plane.logs(
        "w-1", otlp_bodies.gzipped(*_session(), resource=_resource()), Content_Encoding="gzip"
    )

    assert answer.status_code == 200
    assert _rejected(answer.content) == (0, "")
    (session,) = plane.get(f"/v1/sessions?fleet={FLEET}")["items"]
    assert (session["worker"], session["fps"], session["outcome"]) == ("w-1", 24.5, "completed")


def test_the_same_batch_twice_counts_once(plane: ControlPlane) -> None:
    """An answer that got lost is sent again."""
    plane.fleet("w-1")
    body = otlp_bodies.request(*_session(), resource=_resource())

    for _ in range(2):
        assert _rejected(plane.logs("w-1", body).content) == (0, "")

    (week,) = plane.get("/v1/reports/weekly")["items"]
    assert (week["num_sessions"], week["num_slow"], week["slow_rate"]) == (1, 0, 0.0)


def test_json_gets_an_answer_in_json(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    document = otlp_bodies.as_json(*_session(), resource=_resource())

    answer = plane.logs("w-1", json.dumps(document).encode(), Content_Type="application/json")

    assert (answer.status_code, answer.json()) == (200, {})


def test_what_was_not_kept_is_counted_and_told(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    bad = [
        otlp_bodies.record("session.window", session="s-1", seq=-1),
        otlp_bodies.record("session.window", session="s-1", seq=9, num_frames=10**9),
    ]

    answer = plane.logs("w-1", otlp_bodies.request(*_session(), *bad, resource=_resource()))

    num_rejected, message = _rejected(answer.content)
    assert num_rejected == 2
    assert "seq" in message
    assert "num_frames" in message


def test_bad_news_does_not_wait_for_the_timer(plane: ControlPlane) -> None:
    """Contained within a second of the evidence: a tick of five seconds is too late."""
    plane.fleet("w-1")
    before = plane.num_nudges
    plane.logs("w-1", otlp_bodies.request(*_session(), resource=_resource()))
    assert plane.num_nudges == before

    slow = otlp_bodies.record(
        "session.window", session="s-2", seq=3, num_frames=234, streamed_s=10.0
    )
    plane.logs("w-1", otlp_bodies.request(slow, resource=_resource()))

    assert plane.num_nudges == before + 1


@pytest.mark.parametrize("changes", [{"steadyframe.worker": "w-2"}, {"steadyframe.fleet": "other"}])
def test_a_worker_writes_only_its_own_evidence(
    plane: ControlPlane, changes: dict[str, str]
) -> None:
    plane.fleet("w-1", "w-2")
    body = otlp_bodies.request(*_session(), resource=_resource(**changes))

    assert plane.logs("w-1", body).status_code == 403
    assert plane.get("/v1/sessions")["items"] == []


def test_an_unknown_incarnation_is_rejected_record_by_record(plane: ControlPlane) -> None:
    plane.fleet("w-1")
    resource = _resource(**{"service.instance.id": "nobody"})

    answer = plane.logs("w-1", otlp_bodies.request(*_session(), resource=resource))

    assert answer.status_code == 200
    assert _rejected(answer.content)[0] == 2


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"", {"Content_Type": "text/plain"}, 415),
        (b"", {"Content_Encoding": "br"}, 415),
        (b"rubbish", {}, 400),
        (b"rubbish", {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(b"x" * 100, mtime=0)[:-4], {"Content_Encoding": "gzip"}, 400),
        (gzip.compress(bytes(20 << 20), mtime=0), {"Content_Encoding": "gzip"}, 413),
        (bytes(5 << 20), {}, 413),
        (b"[]", {"Content_Type": "application/json"}, 400),
        (b"\xff\xfe", {"Content_Type": "application/json"}, 400),
    ],
    ids=[
        "text",
        "brotli",
        "no-protobuf",
        "no-gzip",
        "cut-short",
        "bomb",
        "too-large",
        "list",
        "no-utf8",
    ],
)
def test_a_body_that_cannot_be_read_is_refused_by_its_kind(
    sqlite_plane: ControlPlane, body: bytes, headers: dict[str, str], status: int
) -> None:
    """A sender halves a batch at 400, and must not at what is no fault of a record."""
    sqlite_plane.fleet("w-1")

    answer = sqlite_plane.logs("w-1", body, **headers)

    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_body_without_a_token_is_not_even_inflated(sqlite_plane: ControlPlane) -> None:
    headers: dict[str, Any] = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}

    assert sqlite_plane.client.post("/v1/logs", content=b"x", headers=headers).status_code == 401


def test_metrics_are_checked_and_let_go(sqlite_plane: ControlPlane) -> None:
    sqlite_plane.fleet("w-1", "w-2")
    headers = {
        "Content-Type": "application/x-protobuf",
        **bearer(sqlite_plane.worker_token("w-1")),
    }

    statuses = []
    for worker in ("w-1", "w-2"):
        request = ExportMetricsServiceRequest()
        attributes = otlp_bodies.attributes(_resource(worker))
        request.resource_metrics.add().resource.attributes.extend(attributes)
        body = request.SerializeToString()
        statuses.append(
            sqlite_plane.client.post("/v1/metrics", content=body, headers=headers).status_code
        )

    assert statuses == [200, 403]
