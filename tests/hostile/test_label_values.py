"""One worker that makes up label values: it costs others nothing, and memory stays as it was.

Sizes are counted, not timed: rows of every table, and objects that the process keeps.
"""

import gc
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from sqlalchemy import func, select

from controlplane.api import otlp
from controlplane.contract.vocabulary import ResourceKey
from controlplane.store.columns import METADATA
from tests import tally
from tests.api.control_plane import FLEET, ControlPlane
from tests.api.otlp_bodies import RESOURCE, attributes, record, request

NUM_VALUES = 1_280
A_REQUEST = otlp.MAX_RESOURCES
# An object for each value would be as many more, and mostly several.
MOST_OBJECTS = NUM_VALUES // 4


@pytest.mark.parametrize("key", ["steadyframe.hardware", "steadyframe.stack", "any.attribute"])
def test_made_up_values_of_a_resource_leave_nothing_behind(
    sqlite_plane: ControlPlane, key: str
) -> None:
    """Hardware and stack that were never registered are refused, the rest is let go."""
    who = _registered(sqlite_plane)
    _send(sqlite_plane, who, key, start=0)  # what is allocated once
    rows, objects = _num_rows(sqlite_plane), _num_objects()
    for start in range(A_REQUEST, NUM_VALUES, A_REQUEST):
        told = _send(sqlite_plane, who, key, start=start)
    assert _num_objects() - objects < MOST_OBJECTS
    if key != "any.attribute":
        assert told.partial_success.rejected_log_records == A_REQUEST
        assert key in told.partial_success.error_message
        assert len(told.partial_success.error_message) < 2_000
    assert _num_rows(sqlite_plane) == rows
    _check_others_are_served(sqlite_plane)
    tally.note("label_values", test=key, count=NUM_VALUES)


@pytest.mark.parametrize("key", [ResourceKey.WORKER, ResourceKey.FLEET, ResourceKey.INCARNATION])
def test_made_up_workers_are_refused_by_the_token(sqlite_plane: ControlPlane, key: str) -> None:
    who = _registered(sqlite_plane)
    sqlite_plane.logs("w-1", _request({**who, key: "made-up"}, number=1).SerializeToString())
    rows, objects = _num_rows(sqlite_plane), _num_objects()
    for number in range(50):
        told = _request({**who, key: f"made-up-{number}"}, number=number)
        answer = sqlite_plane.logs("w-1", told.SerializeToString())
        if key == ResourceKey.INCARNATION:
            said = ExportLogsServiceResponse.FromString(answer.content).partial_success
            assert said.rejected_log_records == 1
            assert f"made-up-{number}" in said.error_message
        else:
            assert answer.status_code == 403
            assert "the token is for" in answer.json()["detail"]
    assert _num_rows(sqlite_plane) == rows
    assert _num_objects() - objects < MOST_OBJECTS
    _check_others_are_served(sqlite_plane)


def test_more_resources_than_any_agent_sends_are_refused_as_a_whole(
    sqlite_plane: ControlPlane,
) -> None:
    """Each is a transaction: thousands of them in one call would hold up every other worker."""
    who = _registered(sqlite_plane)
    rows = _num_rows(sqlite_plane)
    told = ExportLogsServiceRequest()
    for number in range(A_REQUEST + 1):
        told.resource_logs.extend(_request(who, number=number).resource_logs)

    answer = sqlite_plane.logs("w-1", told.SerializeToString())

    assert answer.status_code == 413
    assert f"at most {A_REQUEST}" in answer.json()["detail"]
    assert _num_rows(sqlite_plane) == rows


def _registered(plane: ControlPlane) -> dict[str, str]:
    plane.fleet("w-1", "w-2")
    return _resource(plane, "w-1")


def _resource(plane: ControlPlane, worker: str) -> dict[str, str]:
    life = plane.get(f"/v1/fleets/{FLEET}/workers/{worker}")
    return {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": worker,
        "steadyframe.stack": life["stack"],
    }


def _send(
    plane: ControlPlane, who: dict[str, str], key: str, *, start: int
) -> ExportLogsServiceResponse:
    told = ExportLogsServiceRequest()
    for number in range(start, start + A_REQUEST):
        one = _request({**who, key: f"value-{number:032d}"}, number=1)
        told.resource_logs.extend(one.resource_logs)
    answer = plane.logs("w-1", told.SerializeToString())
    assert answer.status_code == 200, answer.text
    said: ExportLogsServiceResponse = ExportLogsServiceResponse.FromString(answer.content)
    return said


def _request(who: dict[str, str], *, number: int) -> ExportLogsServiceRequest:
    told = record("session.started", session="s-1", seq=number + 1)
    made: ExportLogsServiceRequest = ExportLogsServiceRequest.FromString(request(told))
    made.resource_logs[0].resource.ClearField("attributes")
    made.resource_logs[0].resource.attributes.extend(attributes(who))
    return made


def _check_others_are_served(plane: ControlPlane) -> None:
    told = record("session.started", session="s-of-w-2", seq=1)
    answer = plane.logs("w-2", request(told, resource=_resource(plane, "w-2")))
    assert (answer.status_code, answer.content) == (200, b"")
    assert plane.desired("w-2", after=0).status_code == 200
    assert plane.get("/v1/reports/weekly")["items"] == []


def _num_rows(plane: ControlPlane) -> dict[str, int]:
    def counted() -> Iterator[tuple[str, int]]:
        with plane.parts.context.database.read() as conn:
            for name, table in METADATA.tables.items():
                yield name, conn.scalar(select(func.count()).select_from(table)) or 0

    return dict(counted())


def _num_objects() -> int:
    gc.collect()
    return len(gc.get_objects())
