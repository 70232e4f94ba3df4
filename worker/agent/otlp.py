"""Spooled records as one OTLP/HTTP logs request, and the answer to it."""

import gzip
from collections.abc import Sequence
from itertools import groupby

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # no stubs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.resource.v1 import resource_pb2
from pydantic import JsonValue

from controlplane.contract.vocabulary import ResourceKey
from worker.agent.identity import Identity
from worker.agent.records import Written

SCOPE = "steadyframe.worker.agent"
# Speed over size: at a record every few seconds the bytes do not matter, the worker's time does.
GZIP_LEVEL = 1


def encode(batch: Sequence[Written]) -> bytes:
    """The body of a POST to /v1/logs: protobuf, gzipped."""
    request = logs_service_pb2.ExportLogsServiceRequest(
        resource_logs=[
            logs_pb2.ResourceLogs(
                resource=_resource(identity),
                scope_logs=[
                    logs_pb2.ScopeLogs(
                        scope=common_pb2.InstrumentationScope(name=SCOPE),
                        log_records=[_log_record(each) for each in written],
                    )
                ],
            )
            for identity, written in groupby(batch, key=lambda each: each.identity)
        ]
    )
    return gzip.compress(request.SerializeToString(), compresslevel=GZIP_LEVEL)


def rejection(body: bytes) -> tuple[int, str]:
    """How many records an answer of 200 rejects all the same, and why."""
    try:
        response = logs_service_pb2.ExportLogsServiceResponse.FromString(body)
    except DecodeError:
        # A gateway that answers in its own words has taken the batch all the same.
        return 0, ""
    partial = response.partial_success
    return partial.rejected_log_records, partial.error_message


def _resource(identity: Identity) -> resource_pb2.Resource:
    values = {
        ResourceKey.INCARNATION: identity.incarnation,
        ResourceKey.FLEET: identity.fleet,
        ResourceKey.WORKER: identity.worker,
        ResourceKey.HARDWARE: identity.hardware,
        ResourceKey.STACK: identity.stack,
    }
    return resource_pb2.Resource(
        attributes=[
            common_pb2.KeyValue(key=key, value=common_pb2.AnyValue(string_value=value))
            for key, value in values.items()
        ]
    )


def _log_record(written: Written) -> logs_pb2.LogRecord:
    return logs_pb2.LogRecord(
        time_unix_nano=written.at_ns,
        observed_time_unix_nano=written.at_ns,
        severity_number=logs_pb2.SEVERITY_NUMBER_INFO,
        event_name=written.event.value,
        attributes=_attributes(written.record),
    )


def _attributes(fields: dict[str, JsonValue]) -> list[common_pb2.KeyValue]:
    return [
        common_pb2.KeyValue(key=key, value=_any_value(value))
        for key, value in fields.items()
        if value is not None
    ]


def _any_value(value: JsonValue) -> common_pb2.AnyValue:  # noqa: PLR0911 - one for each type
    # bool before int: True is an int to isinstance.
    if isinstance(value, bool):
        return common_pb2.AnyValue(bool_value=value)
    if isinstance(value, int):
        return common_pb2.AnyValue(int_value=value)
    if isinstance(value, float):
        return common_pb2.AnyValue(double_value=value)
    if isinstance(value, str):
        return common_pb2.AnyValue(string_value=value)
    if isinstance(value, list):
        values = [_any_value(each) for each in value]
        return common_pb2.AnyValue(array_value=common_pb2.ArrayValue(values=values))
    if isinstance(value, dict):
        values_by_key = common_pb2.KeyValueList(values=_attributes(value))
        return common_pb2.AnyValue(kvlist_value=values_by_key)
    return common_pb2.AnyValue()
