"""Delivery: whatever the control plane answers, nothing is lost and order is kept."""

import json
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2

from controlplane.contract.vocabulary import EventName
from tests.worker.agent.build import IDENTITY
from tests.worker.control_plane import decode
from worker.agent.control import Answer, UnreachableError
from worker.agent.records import Ledger
from worker.agent.sender import MAX_BATCH, REJECTED_NAME, Delivery, Sender
from worker.agent.spool import Kind, Spool

OK = 200
AWAY = 0  # no answer at all


class Plane:
    """Answers in the order given, then with 200; a poisoned record makes any batch a bad one."""

    def __init__(
        self, statuses: Sequence[int] = (), *, poison: frozenset[int] = frozenset()
    ) -> None:
        self._statuses = list(statuses)
        self._poison = poison
        self.taken: list[int] = []
        self.sizes: list[int] = []
        self.body = b""

    def post(self, body: bytes) -> Answer:
        seqs = [record.seq for _, record in decode(body)]
        self.sizes.append(len(seqs))
        status = self._statuses.pop(0) if self._statuses else OK
        if status == AWAY:
            raise UnreachableError
        if status == OK and self._poison & set(seqs):
            status = 400
        if status == OK:
            self.taken.extend(seqs)
        return Answer(status=status, body=self.body)


def write(spool: Spool, *, num_records: int) -> None:
    ledger = Ledger(spool, identity=IDENTITY, wall_ns=lambda: 1, on_append=lambda _urgent: None)
    for _ in range(num_records):
        ledger.write(EventName.PROCESS_WINDOW, {"resident_bytes": 1, "num_sessions_started": 0})


def sender(spool: Spool, plane: Plane, folder: Path) -> Sender:
    return Sender(spool, post=plane.post, folder=folder, randomness=random.Random(1))


@settings(deadline=None, max_examples=60)
@given(
    statuses=st.lists(
        st.sampled_from([OK, 400, 413, 429, 500, 502, 503, 504, 401, AWAY]), max_size=30
    ),
    num_records=st.integers(1, 40),
)
def test_any_sequence_of_answers_loses_nothing_and_moves_the_cursor_only_on_200(
    statuses: list[int], num_records: int
) -> None:
    """Each record is taken exactly once in order, or set aside because it alone was refused."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spool = Spool(folder)
        write(spool, num_records=num_records)
        plane = Plane(statuses)
        subject = sender(spool, plane, folder)
        for _ in range(len(statuses) + 60):
            before, num_taken = spool.cursor, len(plane.taken)
            delivery = subject.attempt()
            has_moved = spool.cursor > before
            assert has_moved == (delivery in {Delivery.DELIVERED, Delivery.SET_ASIDE})
            assert (len(plane.taken) > num_taken) == (delivery is Delivery.DELIVERED)
        assert sorted([*plane.taken, *aside(folder)]) == list(range(1, num_records + 1))
        assert plane.taken == sorted(plane.taken)
        spool.close()


@settings(deadline=None, max_examples=60)
@given(poison=st.frozensets(st.integers(1, 30), max_size=4))
def test_only_the_bad_records_are_set_aside(poison: frozenset[int]) -> None:
    """One bad record does not take its batch with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spool = Spool(folder)
        write(spool, num_records=30)
        plane = Plane(poison=poison)
        subject = sender(spool, plane, folder)
        for _ in range(200):
            if subject.attempt() is Delivery.IDLE:
                break
        assert set(aside(folder)) == poison
        assert plane.taken == [seq for seq in range(1, 31) if seq not in poison]
        spool.close()


def aside(folder: Path) -> list[int]:
    path = folder / REJECTED_NAME
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(json.loads(line)["payload"])["record"]["seq"] for line in lines]


def test_a_batch_holds_at_most_256_records(tmp_path: Path) -> None:
    """After an outage the first request must not be refused for its size."""
    spool = Spool(tmp_path)
    write(spool, num_records=MAX_BATCH + 10)
    plane = Plane()
    subject = sender(spool, plane, tmp_path)
    assert [subject.attempt() for _ in range(3)] == [
        Delivery.DELIVERED, Delivery.DELIVERED, Delivery.IDLE,
    ]  # fmt: skip
    assert plane.sizes == [MAX_BATCH, 10]
    spool.close()


def test_a_payload_that_is_no_record_is_set_aside_without_a_request(tmp_path: Path) -> None:
    """Left by another version, perhaps; it must not hold up the others."""
    spool = Spool(tmp_path)
    spool.append(b"{}", kind=Kind.WINDOW)
    plane = Plane()
    assert sender(spool, plane, tmp_path).attempt() is Delivery.SET_ASIDE
    assert plane.sizes == []
    assert spool.num_pending() == 0
    spool.close()


def test_a_partial_success_is_not_repeated_but_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OTLP: what was rejected in an answer of 200 must not be sent again."""
    spool = Spool(tmp_path)
    write(spool, num_records=2)
    plane = Plane()
    partial = logs_service_pb2.ExportLogsPartialSuccess(
        rejected_log_records=1, error_message="seq 1 is a stranger"
    )
    answer = logs_service_pb2.ExportLogsServiceResponse(partial_success=partial)
    plane.body = answer.SerializeToString()
    assert sender(spool, plane, tmp_path).attempt() is Delivery.DELIVERED
    assert spool.num_pending() == 0
    assert "seq 1 is a stranger" in caplog.text
    spool.close()


def test_an_answer_in_foreign_words_is_still_a_200(tmp_path: Path) -> None:
    """A gateway in between may answer with JSON."""
    spool = Spool(tmp_path)
    write(spool, num_records=1)
    plane = Plane()
    plane.body = b'{"ok": true}'
    assert sender(spool, plane, tmp_path).attempt() is Delivery.DELIVERED
    spool.close()
