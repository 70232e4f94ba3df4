"""The contract on disk: what either side writes, the other reads, a release older or newer."""

import json
from typing import Any

import pytest
from pydantic import BaseModel

from controlplane.api import otlp as control_plane_otlp
from controlplane.contract import messages, records
from controlplane.contract.messages import Message
from controlplane.contract.records import Record
from controlplane.contract.vocabulary import EventName
from tests.contract.build_golden import FOLDER, GOLDEN
from worker.agent import otlp as worker_otlp
from worker.agent import records as spooled
from worker.agent.identity import Identity
from worker.agent.records import Written

RECORDS = [event.value for event in EventName]
IDENTITY = Identity(
    fleet="video-eu", worker="w-3", hardware="h100x4", incarnation="i-3", stack="0" * 16
)


def golden(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return content


def written(name: str) -> Written:
    """A record as the agent keeps it: what is None is left out."""
    record = {key: value for key, value in golden(name).items() if value is not None}
    return Written(identity=IDENTITY, event=EventName(name), at_ns=1, record=record)


@pytest.mark.parametrize("name", GOLDEN)
def test_what_is_written_today_is_what_the_file_says(name: str) -> None:
    """A field that is renamed or whose form changes breaks workers that are a release behind."""
    assert GOLDEN[name].model_dump(mode="json") == golden(name)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_file_is_read_whole(name: str) -> None:
    """Nothing in it is ignored, and nothing in it is unknown."""
    kind = type(GOLDEN[name])
    assert kind.model_validate(golden(name)) == GOLDEN[name]
    assert set(golden(name)) == set(kind.model_fields)


@pytest.mark.parametrize("name", GOLDEN)
def test_a_field_of_a_newer_release_is_ignored(name: str) -> None:
    """Workers and control plane are never upgraded in the same second."""
    kind = type(GOLDEN[name])
    assert kind.model_validate({**golden(name), "of_next_year": 1}) == GOLDEN[name]


@pytest.mark.parametrize("name", GOLDEN)
def test_every_field_of_the_example_says_something(name: str) -> None:
    """An example that leaves a field at None would not show a change of it."""
    assert None not in golden(name).values()


def test_every_message_and_record_has_a_file() -> None:
    """A new one without an example would go untested on the other side."""
    kinds = {type(value) for value in GOLDEN.values()}
    parts = {
        *(messages.Arm, messages.Experiment, messages.FlagReason, messages.RankReport),
        *(messages.Probe, messages.LengthProbe),
    }
    abstract = {records.SessionRecord, records.Counters}
    assert {path.stem for path in FOLDER.glob("*.json")} == set(GOLDEN)
    assert kinds == (_leaves(Message) - parts) | (_leaves(Record) - abstract)


@pytest.mark.parametrize("name", RECORDS)
def test_the_control_plane_reads_what_the_agent_sends(name: str) -> None:
    """Through the spool, protobuf and gzip, to the same value."""
    body = worker_otlp.encode([spooled.decode(spooled.encode(written(name)))])
    plain = control_plane_otlp.inflated(body, encoding="gzip", limit=1_000_000)
    (batch,) = control_plane_otlp.logs(plain, kind=control_plane_otlp.PROTOBUF)
    assert batch.problems == ()
    assert batch.records == (GOLDEN[name],)
    assert batch.reporter.incarnation == "i-3"
    assert batch.reporter.stack == "0" * 16


def test_records_of_two_incarnations_stay_apart_in_one_request() -> None:
    """A restarted agent sends its dead life's records beside its own."""
    dead = written("session.ended")
    other = Identity(**{**_fields(IDENTITY), "incarnation": "i-4"})
    alive = Written(identity=other, event=dead.event, at_ns=2, record=dead.record)
    body = control_plane_otlp.inflated(
        worker_otlp.encode([dead, alive]), encoding="gzip", limit=1_000_000
    )
    batches = control_plane_otlp.logs(body, kind=control_plane_otlp.PROTOBUF)
    assert [batch.reporter.incarnation for batch in batches] == ["i-3", "i-4"]


def _fields(identity: Identity) -> dict[str, str]:
    names = ("fleet", "worker", "hardware", "incarnation", "stack")
    return {name: getattr(identity, name) for name in names}


def _leaves(kind: type[BaseModel]) -> set[type[BaseModel]]:
    found = set(kind.__subclasses__())
    return {
        each
        for each in found.union(*map(_leaves, found))
        if each.__module__.startswith("controlplane.contract")
    }
