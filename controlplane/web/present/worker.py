"""The page of one worker: what it should run and why, what it runs, keeps and served."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from controlplane.contract import vocabulary
from controlplane.domain.desired import Layer
from controlplane.domain.fleet import Worker
from controlplane.services.pages import WorkerPage
from controlplane.store.history import Flip
from controlplane.store.session_views import SessionView
from controlplane.web.present import charts, process, words
from controlplane.web.present import fleet as fleet_view
from controlplane.web.present.words import Answer, State, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagView:
    """One flag: desired against effective, and who decided."""

    flag: str
    desired: str
    effective: str
    layer: str
    reason: str
    is_same: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PinView:
    """An operator's choice."""

    flag: str
    variant: str
    reason: str
    actor: str
    left: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """One session in a table."""

    id: str
    state: State
    fps: str
    arm: str
    flags: str
    length: int
    started: str
    streamed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlipView:
    """Something it was told."""

    at: str
    change: str
    layer: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """Everything the page says."""

    name: str
    fleet: str
    answer: Answer
    facts: tuple[tuple[str, str], ...]
    flags: tuple[FlagView, ...]
    breaker: State
    pins: tuple[PinView, ...]
    memory: str
    lengths: tuple[charts.Bar, ...]
    telemetry: tuple[tuple[str, str], ...]
    preview: str  # what its frame is of, or why there is none
    has_streamed: bool
    can_preview: bool
    sessions: tuple[SessionRow, ...]
    flips: tuple[FlipView, ...]
    chart: charts.Dots | None


def view(page: WorkerPage, *, now: datetime) -> WorkerView:
    """The page of a worker at `now`."""
    worker = page.worker
    return WorkerView(
        name=worker.name,
        fleet=worker.fleet,
        answer=_answer(page, now=now),
        facts=_facts(worker, now=now),
        flags=tuple(_flags(page)),
        breaker=_breaker(page, now=now),
        pins=tuple(
            PinView(
                flag=pin.flag,
                variant=pin.variant,
                reason=pin.reason,
                actor=pin.actor,
                left=words.duration(pin.expires_at - now),
            )
            for pin in worker.pins
            if pin.expires_at > now
        ),
        memory=_memory(page, now=now),
        lengths=_lengths(page),
        telemetry=process.facts(page.process) if page.process else (),
        preview=_preview(page.sessions),
        has_streamed=bool(page.sessions),
        can_preview=bool(worker.address),
        sessions=tuple(_session(one, now=now) for one in page.sessions),
        flips=tuple(
            FlipView(
                at=words.at(one.at),
                change=_told(one),
                layer=words.spoken(one.layer),
                reason=one.reason,
            )
            for one in page.flips
        ),
        chart=charts.sessions(page.sessions, is_canary=True, height=170),
    )


def _answer(page: WorkerPage, *, now: datetime) -> Answer:
    state = fleet_view.worker_state(page.worker, now=now)
    if state.tone is Tone.BAD:
        return Answer(tone=Tone.BAD, word="Look at it", why=f"{state.word}: {state.why}")
    if state.tone is Tone.WATCH:
        return Answer(tone=Tone.WATCH, word=state.word.capitalize(), why=state.why)
    steered = vocabulary.steered(page.worker.effective_flags, page.worker.desired_flags)
    runs = words.flags(steered)
    return Answer(tone=Tone.GOOD, word="Safe", why=f"in service; every rank runs {runs}")


def _facts(worker: Worker, *, now: datetime) -> tuple[tuple[str, str], ...]:
    return (
        ("hardware", worker.hardware),
        ("stack", worker.stack),
        ("generation", f"{worker.effective_generation} of {worker.desired_generation}"),
        ("last heard of", words.ago(worker.last_seen_at, now=now)),
        ("last record", words.ago(worker.last_record_at, now=now)),
        (
            "incarnation",
            f"{worker.incarnation}, for {words.duration(now - worker.incarnation_since)}",
        ),
        ("address", worker.address or words.NOTHING),
    )


def _flags(page: WorkerPage) -> list[FlagView]:
    return [
        FlagView(
            flag=one["flag"],
            desired=one["desired"] or one["variant"],
            effective=one["effective"] or words.NOTHING,
            layer=words.spoken(one["layer"]),
            reason=one["reason"],
            is_same=(one["desired"] or one["variant"]) == one["effective"],
        )
        for one in page.explained["reasons"]
    ]


def _told(one: Flip) -> str:
    if dict(one.flags_from) == dict(one.flags_to):
        # An experiment draws per session: what runs beside it stays.
        return f"{words.flags(one.flags_to)}, as before"
    return f"{words.flags(one.flags_from)} → {words.flags(one.flags_to)}"


def _breaker(page: WorkerPage, *, now: datetime) -> State:
    trip = page.worker.trip
    if trip is None:
        return State(tone=Tone.GOOD, word="closed", why=_last_opened(page.flips))
    why = f"{trip.reason}, {words.ago(trip.at, now=now)}; restore it once looked at"
    return State(tone=Tone.BAD, word="open", why=why)


def _last_opened(flips: Sequence[Flip]) -> str:
    """What the flips of the page, newest first, tell of a breaker that is closed by now."""
    told = next((one for one in flips if one.layer == Layer.BREAKER), None)
    if told is None:
        return "nothing of it in what the worker was last told"
    return f"last opened {words.at(told.at)} ({told.reason.partition(': ')[2]})"


def _memory(page: WorkerPage, *, now: datetime) -> str:
    memory = page.process
    if memory is None:
        return "no process window has been received"
    limit = f" of {words.size(memory.limit_bytes)}" if memory.limit_bytes else ""
    held = words.size(sum(memory.flag_bytes.values()))
    return (
        f"{words.size(memory.resident_bytes)}{limit} resident, {held} kept by flags,"
        f" {words.ago(memory.received_at, now=now)}"
    )


def _lengths(page: WorkerPage) -> tuple[charts.Bar, ...]:
    if page.process is None:
        return ()
    return charts.bars(
        [
            (f"{length} tokens", float(kept), words.size(kept))
            for length, kept in page.process.lengths
        ]
    )


def _session(one: SessionView, *, now: datetime) -> SessionRow:
    return SessionRow(
        id=one.id,
        state=_outcome(one),
        fps=words.fps(one.fps),
        arm=one.arm or words.NOTHING,
        flags=words.flags(one.flags),
        length=one.first_forward_length,
        started=words.ago(one.started_at, now=now),
        streamed=f"{one.streamed_s:.1f} s",
    )


def _preview(sessions: Sequence[SessionView]) -> str:
    if any(one.outcome is None for one in sessions):
        return "frames of the session that runs"
    if sessions:
        return "no session runs: the last frame of one that is over"
    return "no session has streamed yet: there is no frame"


def _outcome(one: SessionView) -> State:
    if one.outcome is None:
        return State(tone=Tone.CALM, word="running")
    if one.outcome in ("failed", "lost"):
        return State(tone=Tone.BAD, word=one.outcome, why=words.spoken(one.reason or ""))
    is_slow = one.fps is not None and vocabulary.is_slow(one.fps)
    return State(tone=Tone.WATCH if is_slow else Tone.GOOD, word="slow" if is_slow else one.outcome)
