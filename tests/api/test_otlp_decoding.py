"""Bodies of OTLP requests are decoded within bounds; one bad record does not spoil the others."""

import gzip
import json
import tracemalloc

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from controlplane.api import otlp
from controlplane.api.problems import MalformedError, TooLargeError, UnsupportedError
from controlplane.contract.records import SessionStarted
from tests.api import otlp_bodies

LIMIT = 1 << 20


def test_a_gzip_bomb_is_refused_without_being_inflated() -> None:
    """32 MiB of zeros are 32 kB on the wire: only the limit and one byte may ever be held."""
    bomb = gzip.compress(bytes(32 << 20))

    with pytest.raises(TooLargeError, match="inflates to more"):
        otlp.inflated(bomb, encoding="gzip", limit=LIMIT)


@pytest.mark.parametrize("cut", [1, 8, 12])
def test_a_gzip_body_that_is_cut_short_is_malformed(cut: int) -> None:
    """A connection that broke must not pass for a short batch."""
    whole = gzip.compress(b"x" * 1000)

    with pytest.raises(MalformedError):
        otlp.inflated(whole[:-cut], encoding="gzip", limit=LIMIT)


def test_rubbish_is_not_gzip() -> None:
    with pytest.raises(MalformedError, match="not gzip"):
        otlp.inflated(b"\x00\x01rubbish", encoding="gzip", limit=LIMIT)


def test_a_plain_body_is_bounded_too() -> None:
    with pytest.raises(TooLargeError):
        otlp.inflated(b"x" * (LIMIT + 1), encoding="", limit=LIMIT)


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedError):
        otlp.inflated(b"", encoding=encoding, limit=LIMIT)


@pytest.mark.parametrize("content_type", ["text/plain", "", "application/grpc", "application"])
def test_other_content_types_are_refused(content_type: str) -> None:
    with pytest.raises(UnsupportedError):
        otlp.media_type(content_type)


def test_parameters_of_the_content_type_do_not_matter() -> None:
    assert otlp.media_type("Application/JSON; charset=utf-8") == otlp.JSON


@pytest.mark.parametrize("kind", [otlp.PROTOBUF, otlp.JSON])
@pytest.mark.parametrize("body", [b"\xff\xff\xff", b"{", b'{"resourceLogs": 7}', b"[" * 100_000])
def test_rubbish_is_malformed_not_a_crash(body: bytes, kind: str) -> None:
    with pytest.raises(MalformedError):
        otlp.logs(body, kind=kind)


def test_a_record_becomes_a_typed_value() -> None:
    body = otlp_bodies.request(otlp_bodies.record("session.started", session="s1", seq=1))

    (batch,) = otlp.logs(body, kind=otlp.PROTOBUF)

    assert batch.reporter.worker == "worker-1"
    (record,) = batch.records
    assert isinstance(record, SessionStarted)
    assert record.flags == {"fused_allreduce": "nccl"}
    assert batch.problems == ()


def test_json_is_the_same_request() -> None:
    """OTLP/JSON writes ids in hex, which protobuf's own JSON would take for base64."""
    document = otlp_bodies.as_json(otlp_bodies.record("session.started", session="s1", seq=1))
    document["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]["traceId"] = "5b8efff798038103"

    (batch,) = otlp.logs(json.dumps(document).encode(), kind=otlp.JSON)

    assert len(batch.records) == 1


def test_a_bad_record_is_a_problem_beside_the_good_ones() -> None:
    body = otlp_bodies.request(
        otlp_bodies.record("session.started", session="s1", seq=1),
        otlp_bodies.record("session.started", session="s2", seq=-4),
        otlp_bodies.record("session.exploded", session="s3", seq=3),
    )

    (batch,) = otlp.logs(body, kind=otlp.PROTOBUF)

    assert [record.seq for record in batch.records] == [1]
    assert "session.started: seq" in batch.problems[0]
    assert "'session.exploded' is none of" in batch.problems[1]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e309])
def test_a_measure_that_is_no_number_is_a_problem(value: float) -> None:
    """NaN compares as false with every limit: it must never reach a gate."""
    record = otlp_bodies.record("session.window", session="s1", seq=1, streamed_s=value)

    (batch,) = otlp.logs(otlp_bodies.request(record), kind=otlp.PROTOBUF)

    assert batch.records == ()
    assert "streamed_s" in batch.problems[0]


def test_deep_nesting_is_a_problem() -> None:
    nested: object = 1
    for _ in range(20):
        nested = {"a": nested}
    record = otlp_bodies.record("session.started", session="s1", seq=1, extra=nested)

    (batch,) = otlp.logs(otlp_bodies.request(record), kind=otlp.PROTOBUF)

    assert "nested" in batch.problems[0]


def test_too_many_records_are_refused_before_any_is_decoded() -> None:
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.extend(
        [otlp_bodies.record("x")] * (otlp.MAX_RECORDS + 1)
    )

    with pytest.raises(TooLargeError, match="records"):
        otlp.logs(request.SerializeToString(), kind=otlp.PROTOBUF)


def test_a_resource_must_say_who_reports() -> None:
    body = otlp_bodies.request(otlp_bodies.record("session.started"), resource={})

    with pytest.raises(MalformedError, match=r"service\.instance\.id"):
        otlp.logs(body, kind=otlp.PROTOBUF)


def test_nul_characters_never_reach_the_database() -> None:
    """PostgreSQL refuses them, so one session's detail could stop a whole batch."""
    record = otlp_bodies.record(
        "session.ended", session="s1", seq=1, outcome="failed", detail="a\x00b"
    )

    (batch,) = otlp.logs(otlp_bodies.request(record), kind=otlp.PROTOBUF)

    assert batch.records[0].model_dump()["detail"] == "ab"


@pytest.mark.parametrize("rest", [gzip.compress(b"more", mtime=0), b"\x00", b"rubbish"])
def test_nothing_may_follow_a_gzip_body(rest: bytes) -> None:
    """What is not read must not be answered for: the sender would drop it from its spool."""
    with pytest.raises(MalformedError, match="more than one"):
        otlp.inflated(gzip.compress(b"first") + rest, encoding="gzip", limit=LIMIT)


@pytest.mark.parametrize("num_zeros", [LIMIT + 1, 64 << 20])
def test_a_body_that_inflates_beyond_the_limit_takes_no_more_memory_than_it(
    num_zeros: int,
) -> None:
    bomb = gzip.compress(bytes(num_zeros), mtime=0)
    tracemalloc.start()
    try:
        with pytest.raises(TooLargeError):
            otlp.inflated(bomb, encoding="gzip", limit=LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 4 * LIMIT + (1 << 16)
