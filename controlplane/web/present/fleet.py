"""The pages of fleets: one line that answers, and one tile a worker."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.contract import vocabulary
from controlplane.domain.canary import TERMINAL, Phase
from controlplane.domain.fleet import REACHABLE_WITHIN, Worker
from controlplane.services.pages import FleetPage
from controlplane.store.queries import FleetRow
from controlplane.store.session_views import SessionView
from controlplane.web.present import canary as canary_view
from controlplane.web.present import charts, words
from controlplane.web.present.words import Answer, State, Tone

_GOING_BACK = (Phase.ROLLING_BACK, Phase.CONTAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class TileView:
    """One worker at a glance."""

    name: str
    path: tuple[tuple[str, str], ...]  # flags and the variants that its ranks run
    state: State
    fps: str
    is_slow: bool
    serving: str
    is_canary: bool  # the session that it serves drew the canary
    chart: charts.Dots | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """Everything the page of a fleet says."""

    name: str
    is_sample: bool
    answer: Answer
    facts: tuple[tuple[str, str], ...]
    tiles: tuple[TileView, ...]
    canaries: tuple[canary_view.RowView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardView:
    """A fleet in the list of fleets."""

    name: str
    is_sample: bool
    answer: Answer
    facts: tuple[tuple[str, str], ...]


def view(page: FleetPage, *, now: datetime) -> FleetView:
    """The page of a fleet at `now`."""
    fleet = page.fleet
    return FleetView(
        name=fleet.name,
        is_sample=fleet.is_sample,
        answer=_answer(page, now=now),
        facts=(
            *_facts(fleet),
            *_counts(fleet, ("open sessions", fleet.num_open_sessions)),
        ),
        tiles=tuple(
            _tile(
                worker,
                [s for s in page.sessions if s.worker == worker.name],
                state=_state_in(fleet, worker, now=now),
                now=now,
            )
            for worker in page.workers
        ),
        canaries=tuple(canary_view.row(one, now=now) for one in page.canaries),
    )


def card(fleet: FleetRow, *, now: datetime) -> CardView:
    """A fleet in a list, judged on its counts alone."""
    return CardView(
        name=fleet.name,
        is_sample=fleet.is_sample,
        answer=_of_counts(fleet, now=now)
        or Answer(tone=Tone.GOOD, word="Safe", why="every worker is in service"),
        facts=(
            *_facts(fleet),
            *_counts(
                fleet,
                ("workers", fleet.num_workers),
                ("open sessions", fleet.num_open_sessions),
                ("live canaries", fleet.num_live_canaries),
            ),
        ),
    )


def worker_state(worker: Worker, *, now: datetime) -> State:
    """The state of a worker that matters most."""
    troubles = (_out_of_reach(worker, now=now), _trouble(worker), _limit(worker))
    return next((one for one in troubles if one), State(tone=Tone.GOOD, word="in service"))


def _state_in(fleet: FleetRow, worker: Worker, *, now: datetime) -> State:
    """Its state; one that would be in service is held while the line is stopped."""
    state = worker_state(worker, now=now)
    if state.tone is Tone.GOOD and fleet.stopped_reason is not None:
        return State(tone=Tone.WATCH, word="held by the line")
    return state


def _out_of_reach(worker: Worker, *, now: datetime) -> State | None:
    if worker.is_reachable(now=now, within=REACHABLE_WITHIN):
        return None
    heard = words.ago(worker.last_seen_at, now=now)
    return State(tone=Tone.BAD, word="silent", why=f"last heard of {heard}")


def _trouble(worker: Worker) -> State | None:
    if worker.is_quarantined:
        return State(tone=Tone.BAD, word="quarantined", why="it did not come back from a canary")
    if worker.trip is not None:
        why = f"its breaker opened: {words.spoken(worker.trip.reason)}"
        return State(tone=Tone.BAD, word="tripped", why=why)
    return None


def _limit(worker: Worker) -> State | None:
    if worker.is_break_glass:
        return State(tone=Tone.WATCH, word="break-glass", why="held at the fallback on the machine")
    if worker.is_cordoned:
        return State(tone=Tone.WATCH, word="cordoned", why="takes no new session")
    if worker.is_lease_lapsed:
        return State(tone=Tone.WATCH, word="lease lapsed", why="it left the variant by itself")
    if not worker.is_effective():
        why = f"to {words.flags(worker.desired_flags)}"
        return State(tone=Tone.WATCH, word="changing", why=why)
    return None


def _answer(page: FleetPage, *, now: datetime) -> Answer:
    found = _of_counts(page.fleet, now=now)
    if found is not None and found.tone is Tone.BAD:
        return found
    going_back = _in_phase(page.canaries, _GOING_BACK)
    if going_back:
        why = f"{going_back['name']} is {words.spoken(going_back['phase'])}: {going_back['reason']}"
        return Answer(tone=Tone.BAD, word="Rolling back", why=why)
    troubled = [(w, worker_state(w, now=now)) for w in page.workers]
    bad = [f"{w.name} is {s.word}" for w, s in troubled if s.tone is Tone.BAD]
    if bad:
        return Answer(tone=Tone.BAD, word="Look at it", why="; ".join(bad[:5]))
    if found is not None:
        return found
    live = _in_phase(page.canaries, tuple(set(Phase) - TERMINAL))
    if live:
        why = f"nothing fails; {live['name']} is {live['phase']} with {canary_view.candidate(live)}"
        return Answer(tone=Tone.WATCH, word="Safe so far", why=why)
    return Answer(tone=Tone.GOOD, word="Safe", why="every worker is in service, no canary runs")


def _of_counts(fleet: FleetRow, *, now: datetime) -> Answer | None:
    if fleet.is_sample or (fleet.num_workers == 0 and fleet.stopped_reason is None):
        return _without_workers(fleet)
    if fleet.stopped_reason is not None:
        why = f"every worker runs its fallback: {fleet.stopped_reason}"
        lift = f"steadyframe lift {fleet.name}"
        return Answer(tone=Tone.BAD, word="Line stopped", why=why, command=lift)
    if fleet.num_tripped:
        why = f"the breaker of {words.count(fleet.num_tripped, 'worker')} is open"
        return Answer(tone=Tone.BAD, word="Look at it", why=why)
    oldest = fleet.oldest_seen_at
    if oldest is not None and now - oldest > REACHABLE_WITHIN:
        why = f"a worker has been silent since {words.at(oldest)}"
        return Answer(tone=Tone.BAD, word="Look at it", why=why)
    if fleet.num_out_of_service:
        why = f"{words.count(fleet.num_out_of_service, 'worker')} out of service"
        return Answer(tone=Tone.WATCH, word="Safe", why=why)
    return None


def _without_workers(fleet: FleetRow) -> Answer:
    if fleet.is_sample:
        why = "made-up sessions that were imported; it takes no worker and nothing is flipped"
        return Answer(tone=Tone.CALM, word="Sample data", why=why)
    return Answer(tone=Tone.CALM, word="Empty", why="no worker has registered")


def _facts(fleet: FleetRow) -> tuple[tuple[str, str], ...]:
    if fleet.is_sample:
        return ()
    mode = "enforce: flips by itself" if fleet.mode == "enforce" else "observe: flips nothing"
    promoted = words.flags(fleet.promoted) if fleet.promoted else "nothing: fallbacks"
    return (("mode", mode), ("promoted", promoted))


def _counts(fleet: FleetRow, *counts: tuple[str, int]) -> tuple[tuple[str, str], ...]:
    # A sample has none of these and never will: noughts would read as if it might.
    return () if fleet.is_sample else tuple((name, str(count)) for name, count in counts)


def _in_phase(
    canaries: Sequence[Mapping[str, Any]], phases: Sequence[Phase]
) -> Mapping[str, Any] | None:
    return next((one for one in canaries if one["phase"] in phases), None)


def _tile(
    worker: Worker, sessions: Sequence[SessionView], *, state: State, now: datetime
) -> TileView:
    rated = next((one for one in sessions if one.fps is not None), None)
    serving = next((one for one in sessions if one.outcome is None), None)
    return TileView(
        name=worker.name,
        # A build has others, the worker's own page shows them.
        path=tuple(
            sorted(vocabulary.steered(worker.effective_flags, worker.desired_flags).items())
        ),
        state=state,
        fps=words.fps(rated.fps if rated else None),
        is_slow=bool(rated and rated.fps is not None and vocabulary.is_slow(rated.fps)),
        serving=_serving(serving, worker, now=now),
        is_canary=bool(serving and serving.arm == vocabulary.ARM_CANARY),
        chart=charts.sessions(sessions[:40], is_canary=False, height=56),
    )


def _serving(one: SessionView | None, worker: Worker, *, now: datetime) -> str:
    if one is None:
        return "idle"
    told = f"serving for {words.duration(now - one.started_at)}"
    other = {
        flag: variant
        for flag, variant in one.flags.items()
        if worker.effective_flags.get(flag) != variant
    }
    return f"{told}, this session on {', '.join(sorted(other.values()))}" if other else told
