"""Builds OTLP requests as any SDK would send them."""

import gzip
from typing import Any

from google.protobuf import json_format  # type: ignore[import-untyped] # ships no types
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

RESOURCE = {
    "service.instance.id": "life-1",
    "steadyframe.fleet": "video",
    "steadyframe.worker": "worker-1",
    "steadyframe.hardware": "cpu",
    "steadyframe.stack": "0123456789abcdef",
}
_COUNTERS = {"num_frames": 240, "num_first_chunk_frames": 4, "streamed_s": 9.6}
_DEFAULTS: dict[str, dict[str, Any]] = {
    "session.started": {},
    "session.window": _COUNTERS,
    "session.ended": {**_COUNTERS, "outcome": "completed"},
}


def record(event: str, *, flags: dict[str, str] | None = None, **fields: Any) -> LogRecord:
    """A log record of `event`."""
    values = {
        "contract": 1,
        "flags": flags or {"fused_allreduce": "nccl"},
        **_DEFAULTS.get(event, {}),
        **fields,
    }
    return LogRecord(event_name=event, attributes=attributes(values))


def request(*records: LogRecord, resource: dict[str, str] | None = None) -> bytes:
    """A protobuf request of one resource."""
    sent: bytes = _request(records, RESOURCE if resource is None else resource).SerializeToString()
    return sent


def gzipped(*records: LogRecord, resource: dict[str, str] | None = None) -> bytes:
    """The same, compressed."""
    return gzip.compress(request(*records, resource=resource), mtime=0)


def as_json(*records: LogRecord, resource: dict[str, str] | None = None) -> Any:
    """The same as an OTLP/JSON document."""
    return json_format.MessageToDict(_request(records, resource or RESOURCE))


def _request(records: tuple[LogRecord, ...], resource: dict[str, str]) -> ExportLogsServiceRequest:
    made = ExportLogsServiceRequest()
    logs = made.resource_logs.add()
    logs.resource.attributes.extend(attributes(resource))
    logs.scope_logs.add().log_records.extend(records)
    return made


def attributes(values: dict[str, Any]) -> list[KeyValue]:
    """OTLP attributes of these values."""
    return [KeyValue(key=key, value=_value(value)) for key, value in values.items()]


def _value(value: Any) -> AnyValue:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case str():
            return AnyValue(string_value=value)
        case dict():
            return AnyValue(kvlist_value=KeyValueList(values=attributes(value)))
        case list():
            return AnyValue(array_value=ArrayValue(values=[_value(item) for item in value]))
        case _:
            raise TypeError(type(value))
