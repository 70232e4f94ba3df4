"""A canary that ended although no gate failed: its page says by whom, and calls it no failure."""

from typing import Any

import pytest

from controlplane.domain.canary import TERMINAL, Event, Phase
from controlplane.domain.observation import RequestKind
from controlplane.services import canaries, pages
from controlplane.store.history import Transition
from controlplane.store.transaction import Database
from controlplane.web.present import canary as canary_view
from controlplane.web.present.words import Tone
from tests.clock import START
from tests.simulation import fleet_of
from tests.web.test_present import shown

BACK = (Phase.ROLLING_BACK, Phase.CONTAINED, Phase.ROLLED_BACK)
SAID_NOTHING = (Event.ABORT_REQUESTED, Event.WITHDRAWN, Event.CONTROL_LOST)


def went(sequence: int, event: Event, phases: tuple[Phase, Phase], **more: Any) -> Transition:
    made = {"reason": "as it went", "actor": "anna", "decision_id": None, **more}
    phase_from, phase_to = phases
    return Transition(
        sequence=sequence,
        canary_id="c-1",
        event=event,
        phase_from=phase_from,
        phase_to=phase_to,
        step=0,
        at=START,
        **made,
    )


@pytest.mark.parametrize("phase", BACK)
@pytest.mark.parametrize("event", SAID_NOTHING)
def test_who_ended_it_is_said_with_the_reason(event: Event, phase: Phase) -> None:
    ended = went(2, event, (Phase.PROGRESSING, Phase.ROLLING_BACK))

    answer = canary_view.answer(shown(phase), (ended,))

    assert answer.why.endswith("; ended by anna: as it went")


@pytest.mark.parametrize("event", [Event.GATE_FAILED, Event.HARD_STOPPED])
def test_a_gate_that_failed_ends_it_by_nobody(event: Event) -> None:
    failed = went(2, event, (Phase.PROGRESSING, Phase.ROLLING_BACK), actor="steadyframe")

    answer = canary_view.answer(shown(Phase.ROLLED_BACK), (failed,))

    assert answer.why.endswith("; it was sent back for: as it went")


def test_what_it_had_been_held_for_is_kept() -> None:
    """And of two times it was held, the last one."""
    story = (
        went(5, Event.CONTAINMENT_SEEN, (Phase.ROLLING_BACK, Phase.CONTAINED)),
        went(4, Event.ABORT_REQUESTED, (Phase.HELD, Phase.ROLLING_BACK)),
        went(3, Event.INCONCLUSIVE, (Phase.PROGRESSING, Phase.HELD), reason="no rates"),
        went(2, Event.RESUMED, (Phase.HELD, Phase.PROGRESSING)),
        went(1, Event.PAUSED, (Phase.PROGRESSING, Phase.HELD), reason="lunch"),
    )

    answer = canary_view.answer(shown(Phase.CONTAINED), story)

    assert answer.why.endswith("; ended by anna: as it went; before, it was held: no rates")


def test_the_step_of_one_that_a_person_aborted_is_not_red(sqlite_database: Database) -> None:
    fleet = fleet_of.adopted(sqlite_database, seed=3)
    name = fleet.start("fused_steady")
    fleet.run_to(name, Phase.PROGRESSING)
    with sqlite_database.write() as conn:
        canaries.ask(conn, name, RequestKind.ABORT, act=fleet.act("ticket 12"))
    fleet.run_to(name, *TERMINAL)
    now = fleet.world.timeline.now()
    with sqlite_database.read() as conn:
        view = canary_view.view(pages.canary(conn, name, now=now), now=now)

    states = [step.state for step in view.steps]
    assert [(one.word, one.tone) for one in states if one.word != "not reached"] == [
        ("ended here", Tone.CALM)
    ]
    assert "ended by someone: ticket 12" in view.answer.why
    # The demo's policy has no preflight: none can have passed.
    told = [event.what for event in view.events]
    assert "no preflight asked" in told
    assert "preflight passed" not in told


def test_a_preflight_that_was_judged_passed() -> None:
    """It has its decision on record."""
    judged = went(1, Event.PREFLIGHT_PASSED, (Phase.PREFLIGHT, Phase.PROGRESSING), decision_id="d")

    assert canary_view._event(judged).what == "preflight passed"
