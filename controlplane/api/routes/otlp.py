"""OTLP/HTTP: logs are evidence; metrics are checked and let go, Prometheus keeps those."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from google.protobuf import json_format  # type: ignore[import-untyped] # ships no types
from google.protobuf.message import Message  # type: ignore[import-untyped] # ships no types
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from controlplane.api import auth, otlp
from controlplane.api.context import Context, Here
from controlplane.api.metrics import Metrics, Receipt, metrics_of
from controlplane.api.otlp import Batch, Reporter
from controlplane.contract import vocabulary
from controlplane.contract.records import RECORD_TYPES, Counters, Record, SessionEnded
from controlplane.contract.vocabulary import Outcome
from controlplane.services import ingest
from controlplane.services.ingest import Received, Writer
from controlplane.services.tokens import Principal

router = APIRouter(prefix="/v1", tags=["telemetry"])
_EVENTS = {kind: event for event, kind in RECORD_TYPES.items()}


async def _body(request: Request, _: auth.Worker) -> bytes:
    """The body as sent, read only after the token was found good; `BodyLimit` bounds it."""
    return await request.body()


Body = Annotated[bytes, Depends(_body)]
Measured = Annotated[Metrics, Depends(metrics_of)]


@router.post("/logs", response_class=Response)
def logs(
    request: Request, body: Body, here: Here, principal: auth.Worker, measured: Measured
) -> Response:
    """Keep the evidence in a batch; what cannot be kept is told in `partial_success`."""
    kind = otlp.media_type(request.headers.get("content-type", ""))
    batches = otlp.logs(_plain(request, body, here), kind=kind)
    for batch in batches:
        _check_reporter(principal, batch.reporter)
    problems = [problem for batch in batches for problem in _kept(here, batch, measured)]
    if any(_is_bad_news(record) for batch in batches for record in batch.records):
        here.nudge()
    answer = ExportLogsServiceResponse()
    if problems:
        answer.partial_success.rejected_log_records = len(problems)
        answer.partial_success.error_message = _told(problems)
    return _answer(answer, kind=kind)


@router.post("/metrics", response_class=Response)
def metrics(request: Request, body: Body, here: Here, principal: auth.Worker) -> Response:
    """Check that they are a worker's own; no series is kept here."""
    kind = otlp.media_type(request.headers.get("content-type", ""))
    plain = _plain(request, body, here)
    sent = otlp.parsed(ExportMetricsServiceRequest(), plain, kind=kind)
    for resource in sent.resource_metrics:
        _check_reporter(principal, otlp.reporter(resource.resource.attributes))
    return _answer(ExportMetricsServiceResponse(), kind=kind)


def _plain(request: Request, body: bytes, here: Context) -> bytes:
    encoding = request.headers.get("content-encoding", "")
    return otlp.inflated(body, encoding=encoding, limit=here.settings.max_inflated_bytes)


def _check_reporter(principal: Principal, reporter: Reporter) -> None:
    # A worker's token writes only its own records.
    auth.check_fleet(principal, reporter.fleet)
    auth.check_worker(principal, reporter.worker)


def _kept(here: Context, batch: Batch, measured: Metrics) -> Iterable[str]:
    """Keep the records of one reporter; the problems of those that were not kept."""
    reporter = batch.reporter
    result = ingest.ingest_logs(
        here.database,
        identity=Writer(fleet=reporter.fleet, worker=reporter.worker),
        records=[
            Received(
                event=_EVENTS[type(record)],
                incarnation=reporter.incarnation,
                hardware=reporter.hardware,
                stack=reporter.stack,
                record=record,
            )
            for record in batch.records
        ],
        now=here.clock.now(),
    )
    measured.count_records(Receipt.NEW, result.num_new)
    measured.count_records(Receipt.REPEATED, result.num_repeated)
    measured.count_records(Receipt.REFUSED, len(result.rejected))
    measured.count_records(Receipt.UNREADABLE, len(batch.problems))
    return (*batch.problems, *(why for _, why in result.rejected))


def _is_bad_news(record: Record) -> bool:
    """Whether the next tick should not wait for its timer."""
    if isinstance(record, SessionEnded) and record.outcome is Outcome.FAILED:
        return True
    if not isinstance(record, Counters) or not vocabulary.counts_for_rate(record.streamed_s):
        return False
    fps = vocabulary.session_fps(
        num_frames=record.num_frames,
        num_first_chunk_frames=record.num_first_chunk_frames,
        streamed_s=record.streamed_s,
    )
    return fps is not None and not vocabulary.meets_floor(fps)


def _told(problems: Sequence[str]) -> str:
    shown = "; ".join(problems[: otlp.MAX_PROBLEMS])
    num_more = len(problems) - otlp.MAX_PROBLEMS
    return f"{shown}; and {num_more} more" if num_more > 0 else shown


def _answer(message: Message, *, kind: str) -> Response:
    content: bytes | str = (
        message.SerializeToString() if kind == otlp.PROTOBUF else json_format.MessageToJson(message)
    )
    return Response(content, media_type=kind)
