"""A control plane of the tests' own: the calls of the contract over real HTTP, and a memory."""

import gzip
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.common.v1 import common_pb2

from controlplane.contract import records
from controlplane.contract.messages import BreakerTrip, DesiredState, EffectiveReport, Registration
from controlplane.contract.records import Record, SessionEnded
from controlplane.contract.vocabulary import EventName

HOLD_S = 1.0


class ControlPlaneOfTests:
    """What it wants is set by the test; what it was told is in lists."""

    def __init__(self, desired: DesiredState) -> None:
        self._desired = desired
        self._changed = threading.Condition()
        self.url = ""
        self.registrations: list[Registration] = []
        self.effectives: list[EffectiveReport] = []
        self.trips: list[BreakerTrip] = []
        self.records: list[tuple[str, Record]] = []  # with the incarnation
        self.is_answering = True  # False: every call gets 503

    @property
    def desired(self) -> DesiredState:
        return self._desired

    def want(self, **changes: Any) -> None:
        """The next generation."""
        with self._changed:
            generation = self._desired.generation + 1
            fields = {**self._desired.model_dump(), "generation": generation, **changes}
            self._desired = DesiredState.model_validate(fields)
            self._changed.notify_all()

    def ended(self) -> list[SessionEnded]:
        return [record for _, record in self.records if isinstance(record, SessionEnded)]

    def wait_for(self, predicate: Callable[[], bool], *, timeout_s: float = 15.0) -> None:
        with self._changed:
            assert self._changed.wait_for(predicate, timeout=timeout_s), self.told()

    def told(self) -> str:
        return f"{self.effectives=} {self.trips=} {[record for _, record in self.records][-6:]=}"

    # What the handler asks.

    def get(self, after: int) -> DesiredState:
        with self._changed:
            self._changed.wait_for(lambda: self._desired.generation != after, timeout=HOLD_S)
            return self._desired

    def take(self, call: str, body: bytes) -> DesiredState | None:
        with self._changed:
            self._changed.notify_all()
            match call:
                case "registration":
                    self.registrations.append(Registration.model_validate_json(body))
                    return self._desired
                case "effective":
                    self.effectives.append(EffectiveReport.model_validate_json(body))
                case "trips":
                    self.trips.append(BreakerTrip.model_validate_json(body))
                case "logs":
                    self.records.extend(decode(body))
                case _:
                    raise AssertionError(call)
            return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        after = int(parse_qs(urlsplit(self.path).query)["after"][0])
        self._answer(self._plane.get(after))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(self._plane.take(self.path.rsplit("/", 1)[1], body))

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    @property
    def _plane(self) -> ControlPlaneOfTests:
        return cast("_Server", self.server).plane

    def _answer(self, state: DesiredState | None) -> None:
        content = state.model_dump_json().encode() if state else b""
        self.send_response(200 if self._plane.is_answering else 503)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    plane: ControlPlaneOfTests

    def handle_error(self, *_: object) -> None:
        """A worker that is killed leaves broken pipes."""


@contextmanager
def control_plane(desired: DesiredState, *, port: int = 0) -> Iterator[ControlPlaneOfTests]:
    """A control plane that listens on loopback until the test is over."""
    plane = ControlPlaneOfTests(desired)
    server = _Server(("127.0.0.1", port), _Handler)
    server.plane = plane
    plane.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield plane
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def decode(body: bytes) -> list[tuple[str, Record]]:
    """The records of a request to /v1/logs, each with its incarnation."""
    request = logs_service_pb2.ExportLogsServiceRequest.FromString(gzip.decompress(body))
    found = []
    for resource_logs in request.resource_logs:
        resource = _fields(resource_logs.resource.attributes)
        for scope in resource_logs.scope_logs:
            for log_record in scope.log_records:
                kind = records.RECORD_TYPES[EventName(log_record.event_name)]
                record = kind.model_validate(_fields(log_record.attributes))
                found.append((resource["service.instance.id"], record))
    return found


def _fields(attributes: Any) -> dict[str, Any]:
    return {each.key: _value(each.value) for each in attributes}


def _value(value: common_pb2.AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    if kind == "kvlist_value":
        return _fields(value.kvlist_value.values)
    return json.loads(json.dumps(getattr(value, str(kind))))
