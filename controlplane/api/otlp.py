"""OTLP/HTTP bodies to typed evidence records, with a bound on everything that is decoded.

Pure: bytes in, values out. A body that cannot be read is an error; a record that cannot is a
problem beside the others, told in `partial_success`.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf import json_format  # type: ignore[import-untyped] # ships no types
from google.protobuf.message import (  # type: ignore[import-untyped] # ships no types
    DecodeError,
    Message,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from pydantic import ValidationError

from controlplane.api import schemas
from controlplane.api.problems import MalformedError, TooLargeError, UnsupportedError
from controlplane.contract.records import RECORD_TYPES, Record
from controlplane.contract.vocabulary import EventName, ResourceKey

_M = TypeVar("_M", bound=Message)

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
# The agent sends at most 256; a Collector's default batch is 8192.
MAX_RECORDS = 10_000
# Each is a transaction. The agent's largest batch has 256 records, at worst each of another life.
MAX_RESOURCES = 256
# A window has some 25 fields; nested ones are counted on their own.
MAX_ATTRIBUTES = 128
# Segments within an ended session are three deep.
MAX_DEPTH = 8
# As many problems are spelt out; the count tells of the rest.
MAX_PROBLEMS = 5
_EVENTS = {event.value: event for event in EventName}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Who says it: the resource attributes, refused unless the token's."""

    fleet: str
    worker: str
    incarnation: str
    hardware: str
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Records of one reporter that could be read, and what was wrong with the others."""

    reporter: Reporter
    records: tuple[Record, ...]
    problems: tuple[str, ...]


class _UnreadableError(Exception):
    """One record or resource is not what the contract says."""


def media_type(content_type: str) -> str:
    """The kind of body that `content_type` announces. Raises: UnsupportedError."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind not in (PROTOBUF, JSON):
        raise UnsupportedError(f"send {PROTOBUF} or {JSON}")
    return kind


def inflated(body: bytes, *, encoding: str, limit: int) -> bytes:
    """`body` without its compression, never holding more than `limit` bytes of it.

    Raises:
        UnsupportedError: an encoding other than gzip or identity.
        MalformedError: not gzip, cut short, or followed by more.
        TooLargeError: more than `limit` bytes.
    """
    if encoding.lower() in ("", "identity"):
        if len(body) > limit:
            raise TooLargeError(f"the body is larger than {limit} bytes")
        return body
    if encoding.lower() != "gzip":
        raise UnsupportedError("content-encoding: send gzip or identity")
    decoder = zlib.decompressobj(wbits=31)
    try:
        plain = decoder.decompress(body, limit + 1)
    except zlib.error as error:
        raise MalformedError("the body is not gzip") from error
    if len(plain) > limit:
        raise TooLargeError(f"the body inflates to more than {limit} bytes")
    if not decoder.eof:
        raise MalformedError("the gzip body is cut short")
    if decoder.unused_data:
        # A second member would be records that we answer for and never read.
        raise MalformedError("the body is more than one gzip member: send one")
    return plain


def logs(body: bytes, *, kind: str) -> tuple[Batch, ...]:
    """The batches of one export request, one for each resource.

    Raises:
        MalformedError: the body is not a request, or a resource does not say who reports.
        TooLargeError: more than `MAX_RECORDS` or `MAX_RESOURCES`.
    """
    request = parsed(ExportLogsServiceRequest(), body, kind=kind)
    num_resources = len(request.resource_logs)
    if num_resources > MAX_RESOURCES:
        raise TooLargeError(f"{num_resources} resources in one request; at most {MAX_RESOURCES}")
    num_records = sum(
        len(scope.log_records)
        for resource in request.resource_logs
        for scope in resource.scope_logs
    )
    if num_records > MAX_RECORDS:
        raise TooLargeError(f"{num_records} records in one request; at most {MAX_RECORDS}")
    return tuple(
        _batch(
            resource.resource.attributes,
            (record for scope in resource.scope_logs for record in scope.log_records),
        )
        for resource in request.resource_logs
    )


def parsed(message: _M, body: bytes, *, kind: str) -> _M:
    """`message` filled from `body`. Raises: MalformedError."""
    try:
        if kind == PROTOBUF:
            message.ParseFromString(body)
        else:
            document = _without_ids(json.loads(body))
            json_format.ParseDict(document, message, ignore_unknown_fields=True)
    except (DecodeError, json_format.ParseError, ValueError, TypeError, RecursionError) as error:
        raise MalformedError(f"the body is not an OTLP request in {kind}") from error
    return message


def reporter(attributes: Iterable[KeyValue]) -> Reporter:
    """Who the resource says it is. Raises: MalformedError."""
    values = {one.key: schemas.without_nul(one.value.string_value) for one in attributes}
    missing = [key.value for key in ResourceKey if not values.get(key)]
    if missing:
        raise MalformedError(f"resource attributes are missing: {', '.join(missing)}")
    return Reporter(
        fleet=values[ResourceKey.FLEET],
        worker=values[ResourceKey.WORKER],
        incarnation=values[ResourceKey.INCARNATION],
        hardware=values[ResourceKey.HARDWARE],
        stack=values[ResourceKey.STACK],
    )


def _batch(attributes: Iterable[KeyValue], log_records: Iterable[LogRecord]) -> Batch:
    records: list[Record] = []
    problems: list[str] = []
    for log_record in log_records:
        try:
            records.append(_record(log_record))
        except _UnreadableError as error:
            problems.append(str(error))
    return Batch(reporter=reporter(attributes), records=tuple(records), problems=tuple(problems))


def _record(log_record: LogRecord) -> Record:
    if len(log_record.attributes) > MAX_ATTRIBUTES:
        raise _UnreadableError(f"a record has more than {MAX_ATTRIBUTES} attributes")
    fields = {one.key: _plain(one.value) for one in log_record.attributes}
    name = log_record.event_name or str(fields.get("event.name", ""))
    if name not in _EVENTS:
        raise _UnreadableError(f"event {name[:60]!r} is none of {', '.join(_EVENTS)}")
    try:
        return RECORD_TYPES[_EVENTS[name]].model_validate(schemas.without_nul(fields))
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100]
        raise _UnreadableError(f"{name}: {where}: {first['msg'][:200]}") from error


def _plain(value: AnyValue, depth: int = 0) -> Any:
    if depth > MAX_DEPTH:
        raise _UnreadableError(f"a value is nested more than {MAX_DEPTH} deep")
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(item, depth + 1) for item in value.array_value.values]
        case "kvlist_value":
            return {one.key: _plain(one.value, depth + 1) for one in value.kvlist_value.values}
        case None:
            return None
        case scalar:
            return getattr(value, scalar)


def _without_ids(document: Any) -> Any:
    """OTLP/JSON writes ids in hex where protobuf's JSON expects base64; evidence needs neither."""
    if not isinstance(document, dict):
        message = "a JSON object is expected"
        raise TypeError(message)
    for record in _json_records(document):
        record.pop("traceId", None)
        record.pop("spanId", None)
    return document


def _json_records(document: Any) -> Iterator[dict[str, Any]]:
    for resource in _objects(document, "resourceLogs"):
        for scope in _objects(resource, "scopeLogs"):
            yield from _objects(scope, "logRecords")


def _objects(parent: Any, key: str) -> list[dict[str, Any]]:
    children = parent.get(key) if isinstance(parent, Mapping) else None
    return [one for one in children if isinstance(one, dict)] if isinstance(children, list) else []
