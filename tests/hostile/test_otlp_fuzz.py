"""Whatever is sent as OTLP: a success or a clear refusal, never a fault of ours, and none kept."""

import gc
import gzip
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from controlplane.contract.records import RECORD_TYPES
from tests.api.control_plane import FLEET, ControlPlane
from tests.api.otlp_bodies import RESOURCE, attributes, record, request

pytestmark = pytest.mark.timeout(600)  # hundreds of requests on a machine that may be busy
# One connection to one application over many examples: it keeps nothing of them that matters.
FUZZ = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SAID = {200, 400, 401, 403, 413, 415, 422}
WEIRD = [
    "",
    "\x00",
    "a\x00b",
    "\x1b[2J",
    "<script>alert(1)</script>",
    "%s%n",
    "{{7*7}}",
    "\u202e",
    "x" * 5000,
    "../../etc",
]
FIELDS = sorted({name for kind in RECORD_TYPES.values() for name in kind.model_fields})
texts = st.one_of(st.sampled_from(WEIRD), st.text(max_size=20))
numbers = st.one_of(
    st.sampled_from([0, 1, -1, 2**31, 2**53, 2**62, 2**63 - 1, -(2**63)]),
    st.integers(-(2**63), 2**63 - 1),
)
scalars = st.one_of(
    texts.map(lambda text: AnyValue(string_value=text)),
    numbers.map(lambda number: AnyValue(int_value=number)),
    st.floats().map(lambda number: AnyValue(double_value=number)),
    st.booleans().map(lambda flag: AnyValue(bool_value=flag)),
    st.binary(max_size=16).map(lambda some: AnyValue(bytes_value=some)),
    st.just(AnyValue()),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(
            lambda found: AnyValue(array_value=ArrayValue(values=found))
        ),
        st.dictionaries(texts, inner, max_size=3).map(
            lambda found: AnyValue(
                kvlist_value=KeyValueList(
                    values=[KeyValue(key=key, value=value) for key, value in found.items()]
                )
            )
        ),
    ),
    max_leaves=8,
)
fields = st.dictionaries(st.one_of(st.sampled_from(FIELDS), texts), values, max_size=12)


def _sent(plane: ControlPlane, body: bytes, **headers: str) -> None:
    answer = plane.logs("w-1", body, **headers)
    assert answer.status_code in SAID, (answer.status_code, answer.text)


@pytest.fixture
def resource(plane: ControlPlane) -> dict[str, str]:
    """What a registered worker says of itself."""
    plane.fleet("w-1")
    life = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    return {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": "w-1",
        "steadyframe.stack": life["stack"],
    }


@FUZZ
@given(
    event=st.sampled_from(["session.started", "session.window", "session.ended", "process.window"]),
    changed=fields,
    seq=numbers,
    session=texts,
)
def test_records_with_any_value_in_any_field(
    plane: ControlPlane,
    resource: dict[str, str],
    event: str,
    changed: dict[str, AnyValue],
    seq: int,
    session: str,
) -> None:
    """The frame is right, so that what is wrong gets as deep as it can: 64-bit ends included."""
    told = record(event, seq=seq, session=session)
    kept = [one for one in told.attributes if one.key not in changed]
    extra = [KeyValue(key=key, value=value) for key, value in changed.items()]
    log_record = LogRecord(event_name=event, attributes=[*kept, *extra])
    _sent(plane, request(log_record, resource=resource))


@FUZZ
@given(who=st.dictionaries(st.sampled_from(sorted(RESOURCE)), texts))
def test_resources_that_say_anything(
    plane: ControlPlane, resource: dict[str, str], who: dict[str, str]
) -> None:
    told = record("session.started", seq=1, session="s")
    _sent(plane, request(told, resource={**resource, **who}))


@FUZZ
@given(body=st.binary(max_size=400), encoding=st.sampled_from(["", "gzip"]), cut=st.integers(0, 20))
def test_bytes_that_are_nothing(
    plane: ControlPlane, resource: dict[str, str], body: bytes, encoding: str, cut: int
) -> None:
    del resource
    headers = {"Content_Encoding": encoding} if encoding else {}
    sent = gzip.compress(body)[: len(body) + 20 - cut] if encoding else body
    _sent(plane, sent, **headers)


@FUZZ
@given(at=st.integers(0, 400), replaced=st.binary(min_size=1, max_size=4))
def test_a_good_body_with_some_bytes_changed(
    plane: ControlPlane, resource: dict[str, str], at: int, replaced: bytes
) -> None:
    """Nearly right reaches further than rubbish does."""
    good = request(record("session.ended", seq=2, session="s"), resource=resource)
    at = min(at, len(good))
    _sent(plane, good[:at] + replaced + good[at + len(replaced) :])


@FUZZ
@given(
    document=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["resourceLogs", "scopeLogs", "logRecords", "attributes", "x"]),
                inner,
                max_size=3,
            )
        ),
        max_leaves=10,
    )
)
def test_json_that_is_nearly_a_request(
    plane: ControlPlane, resource: dict[str, str], document: Any
) -> None:
    del resource
    _sent(plane, json.dumps(document).encode(), Content_Type="application/json")


def test_repeated_late_and_reordered_records_count_once(
    plane: ControlPlane, resource: dict[str, str]
) -> None:
    """A session that ended stays as it ended, whatever comes afterwards and however often."""
    told = [
        record("session.started", seq=1, session="s-1"),
        record("session.window", seq=2, session="s-1"),
        record("session.ended", seq=3, session="s-1"),
    ]
    for log_record in (*reversed(told), *told, *told):
        assert plane.logs("w-1", request(log_record, resource=resource)).status_code == 200
    found = plane.get("/v1/sessions")["items"]
    assert [(one["id"], one["outcome"]) for one in found] == [("s-1", "completed")]


def test_fifty_thousand_label_values_are_kept_by_nobody(
    sqlite_plane: ControlPlane,
) -> None:
    """Metrics are checked and let go, and unknown attributes are left out: no memory grows."""
    plane = sqlite_plane
    plane.fleet("w-1")
    life = plane.get(f"/v1/fleets/{FLEET}/workers/w-1")
    who = {
        **RESOURCE,
        "service.instance.id": life["incarnation"],
        "steadyframe.worker": "w-1",
        "steadyframe.stack": life["stack"],
    }
    _label_values(plane, who, start=0)  # what is allocated once
    num_before = _num_objects()
    for start in range(0, 50_000, 5_000):
        _label_values(plane, who, start=start)
    # A dictionary, a list or a value object for each would be 50,000 more.
    assert _num_objects() - num_before < 10_000


def _num_objects() -> int:
    gc.collect()
    return len(gc.get_objects())


def _label_values(plane: ControlPlane, who: dict[str, str], *, start: int) -> None:
    told = ExportLogsServiceRequest.FromString(request(resource=who))
    for number in range(start, start + 5_000):
        log_record = told.resource_logs[0].scope_logs[0].log_records.add(event_name="label")
        log_record.attributes.extend(attributes({f"label-{number}": f"value-{number:034d}"}))
    assert plane.logs("w-1", told.SerializeToString()).status_code == 200
