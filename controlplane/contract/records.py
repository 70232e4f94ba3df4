"""Measurements: the OTLP log records that are evidence, as typed values.

Each is one log record: `event_name` says which, its attributes are the fields below by the same
names (nested values as OTLP maps and arrays). Counters are cumulative over the session, so that the
highest `seq` alone tells all: loss, repeats and reordering do no harm.
"""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from controlplane.contract import vocabulary
from controlplane.contract.messages import (
    Count,
    Flags,
    Identifier,
    Real,
    Seconds,
    Text,
    Version,
    Whole,
)
from controlplane.contract.telemetry import MAX_GPUS, Clamps, GpuReading, Milliseconds, StepTimes
from controlplane.contract.vocabulary import CONTRACT_VERSION, EventName, Outcome, Reason


class Record(BaseModel):
    """What every evidence record carries."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    contract: Version = CONTRACT_VERSION
    seq: Annotated[Whole, Field(ge=1, le=vocabulary.MAX_INT64)]  # per incarnation, from 1, no gaps
    generation: Count = 0


class Segment(BaseModel):
    """A stretch of one session under one set of flags."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    flags: Flags
    num_frames: Count  # without those of the session's first chunk, which start the clock
    streamed_s: Seconds


class SessionRecord(Record):
    """What every record of a session carries: who, under what, and the counters so far."""

    session: Identifier
    flags: Flags  # drawn for the session
    canary: Identifier | None = None
    arm: Identifier | None = None
    first_forward_length: Count = 0  # tokens
    is_synthetic: bool = False  # driven by `steadyframe soak`, not by a person


class SessionStarted(SessionRecord):
    """Written to the spool before the first forward."""


class Counters(SessionRecord):
    """Cumulative measures of a session."""

    num_frames: Count
    num_first_chunk_frames: Count
    streamed_s: Seconds
    viewer_wait_s: Seconds = 0.0
    num_late_chunks: Count = 0
    longest_stall_ms: Milliseconds = 0.0
    worst_second_frames: Count | None = None
    num_steps: Count = 0
    num_non_compliant_steps: Count = 0  # steps whose effective flags were not the drawn ones
    diffusion_ms_mean: Milliseconds | None = None
    reduce_ms_mean: Milliseconds | None = None
    decoder_ms_mean: Milliseconds | None = None
    encode_ms_mean: Milliseconds | None = None


class SessionWindow(Counters):
    """The counters every few seconds while a session runs."""


class SessionEnded(Counters):
    """The last record of a session."""

    outcome: Outcome
    reason: Reason | None = None
    detail: Text = ""
    segments: Annotated[list[Segment], Field(max_length=1000)] = []


class LengthBytes(BaseModel):
    """Bytes that a worker keeps for one first-forward length."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    length: Count  # tokens
    retained_bytes: Count


class ProcessWindow(Record):
    """Memory and health of one incarnation."""

    resident_bytes: Count
    limit_bytes: Count | None = None
    flag_bytes: dict[str, Count] = {}
    lengths: Annotated[list[LengthBytes], Field(max_length=100_000)] = []
    num_sessions_started: Count  # since the incarnation began: exposes sessions that left no record
    # Of all GPUs of the worker together; None if one of them does not tell.
    power_w: Annotated[Real, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    # None: no step has told its times, nobody counts, or the GPUs cannot be read. Never a zero.
    steps: StepTimes | None = None
    clamps: Clamps | None = None
    gpus: Annotated[list[GpuReading], Field(max_length=MAX_GPUS)] | None = None


RECORD_TYPES: dict[EventName, type[Record]] = {
    EventName.SESSION_STARTED: SessionStarted,
    EventName.SESSION_WINDOW: SessionWindow,
    EventName.SESSION_ENDED: SessionEnded,
    EventName.PROCESS_WINDOW: ProcessWindow,
}
