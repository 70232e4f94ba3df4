"""What a worker wants, and why: desired state, lease, breaker and break-glass in one."""

from typing import Any

import pytest

from controlplane.contract import vocabulary
from controlplane.contract.messages import DesiredState
from tests.worker.agent.build import CAPABILITIES, FALLBACK, FAST, desired, experiment
from worker.agent.intent import Cause, Draw, Intent, Wanted
from worker.agent.laststate import LastState

STACK = "a" * 16
PROVEN = LastState(generation=4, flags=FAST, stack=STACK)


def intent(stored: LastState = PROVEN, *, stack: str = STACK) -> Intent:
    return Intent(stored, stack=stack, fallback=FALLBACK, capabilities=CAPABILITIES)


def wanted(of: Intent, *, now: float = 0.0, draw: Draw | None = None) -> Wanted:
    return of.wanted(draw or of.draw("next", now=now), now=now)


def test_a_new_worker_starts_at_the_fallback() -> None:
    """Nothing is proven here yet."""
    assert wanted(intent(LastState())) == Wanted(flags=FALLBACK, generation=0, cause=Cause.NO_STATE)


def test_what_was_proven_on_this_stack_runs_before_the_control_plane_has_spoken() -> None:
    """Fail-static over a restart."""
    assert wanted(intent()) == Wanted(flags=FAST, generation=4, cause=Cause.STORED)


def test_another_stack_starts_at_the_fallback_but_generations_do_not_fall() -> None:
    """A new torch has proven nothing; the number still says what the worker had accepted."""
    other = intent(stack="b" * 16)
    assert wanted(other) == Wanted(flags=FALLBACK, generation=4, cause=Cause.NO_STATE)
    assert other.last_state.flags == FALLBACK


def test_stored_flags_that_this_build_does_not_know_are_not_run() -> None:
    """A downgrade lands on the fallback, not on an engine error."""
    stored = LastState(generation=4, flags={"fused_allreduce": "newer"}, stack=STACK)
    assert wanted(intent(stored)).flags == FALLBACK


def test_an_older_generation_is_refused() -> None:
    """A restored database must not turn a worker back."""
    subject = intent()
    assert "older than 4" in subject.accept(desired(3), now=0)
    assert subject.generation == 4


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"flags": {"warp": "on"}}, "flag warp is not known"),
        ({"flags": {"fused_allreduce": "magic"}}, "no variant magic in this build, allowed: nccl"),
    ],
)
def test_unknown_words_are_refused_and_change_nothing(
    fields: dict[str, Any], sentence: str
) -> None:
    """A flag that is not there never counts as flipped."""
    subject = intent()
    before = wanted(subject)
    assert sentence in subject.accept(desired(6, **fields), now=0)
    assert wanted(subject) == before


def test_an_unknown_variant_in_an_arm_is_refused_too() -> None:
    """Else half of the sessions would run something else than they drew."""
    arms = experiment().model_dump()
    arms["arms"][0]["flags"] = {"fused_allreduce": "magic"}
    state = DesiredState.model_validate({**desired(6).model_dump(), "experiment": arms})
    assert "no variant magic" in intent().accept(state, now=0)


def test_flags_that_the_desired_state_leaves_out_are_at_the_fallback() -> None:
    """An older control plane does not know every switch of a newer worker."""
    subject = intent()
    assert not subject.accept(desired(6, flags={}), now=0)
    assert wanted(subject).flags == FALLBACK


def test_an_unproven_variant_runs_as_long_as_its_lease() -> None:
    """Nobody judges any more, so it stops by itself."""
    subject = intent(LastState())
    subject.accept(desired(5, lease_s=10), now=100)
    assert wanted(subject, now=109.9).cause is Cause.DESIRED
    assert wanted(subject, now=110.0) == Wanted(
        flags=FALLBACK, generation=5, cause=Cause.LEASE_LAPSED
    )


def test_every_answer_renews_the_lease() -> None:
    """The held-open call is the heartbeat of the judge."""
    subject = intent()
    for now in (100, 108, 116):
        subject.accept(desired(5, lease_s=10), now=now)
    assert wanted(subject, now=125).cause is Cause.DESIRED


def test_after_a_lapse_only_a_newer_generation_leads_back() -> None:
    """The control plane held the canary: an old answer on its way must not restart it."""
    subject = intent()
    subject.accept(desired(5, lease_s=10), now=100)
    subject.accept(desired(5, lease_s=10), now=111)
    assert wanted(subject, now=111).cause is Cause.LEASE_LAPSED
    subject.accept(desired(6, lease_s=10), now=112)
    assert wanted(subject, now=112) == Wanted(flags=FAST, generation=6, cause=Cause.DESIRED)


def test_a_refused_generation_renews_no_lease() -> None:
    """The control plane wants something else; what runs is not what is judged."""
    subject = intent()
    subject.accept(desired(5, lease_s=10), now=100)
    subject.accept(desired(6, flags={"warp": "on"}, lease_s=10), now=109)
    assert wanted(subject, now=111).cause is Cause.LEASE_LAPSED


def test_after_a_trip_only_a_newer_generation_leads_back() -> None:
    """The tripped variant is never entered again by repeating the order."""
    subject = intent()
    subject.accept(desired(5), now=0)
    subject.note_trip()
    subject.accept(desired(5), now=1)
    assert wanted(subject) == Wanted(flags=FALLBACK, generation=5, cause=Cause.BREAKER_OPEN)
    subject.accept(desired(6), now=2)
    assert wanted(subject).flags == FAST


def test_a_trip_and_a_lapse_are_remembered_over_a_restart() -> None:
    """A crash loop must not try the same variant once per restart."""
    subject = intent()
    subject.accept(desired(5), now=0)
    subject.note_trip()
    again = intent(subject.last_state)
    assert wanted(again).cause is Cause.BREAKER_OPEN
    again.accept(desired(5), now=0)
    assert wanted(again).flags == FALLBACK


def test_unproven_flags_are_not_kept_over_a_restart() -> None:
    """What runs on a lease runs nowhere without one."""
    subject = intent(LastState())
    subject.accept(desired(5, lease_s=10), now=0)
    assert subject.last_state.flags == FALLBACK
    assert subject.last_state.generation == 5


def test_broken_glass_wins_over_everything_and_ends_with_its_cause() -> None:
    """Whoever stands at the machine knows more than the control plane."""
    subject = intent()
    subject.accept(desired(5), now=0)
    subject.note_glass(is_broken=True)
    assert wanted(subject) == Wanted(flags=FALLBACK, generation=5, cause=Cause.BREAK_GLASS)
    subject.note_glass(is_broken=False)
    assert wanted(subject).flags == FAST


def test_a_session_draws_its_arm_by_the_contracts_hash() -> None:
    """Anyone can check a draw afterwards."""
    subject = intent()
    subject.accept(desired(5, flags=FALLBACK, experiment=experiment()), now=0)
    for number in range(50):
        draw = subject.draw(f"session-{number}", now=0)
        shares = [("canary", 0.5), ("control", 0.5)]
        expected = vocabulary.drawn_arm(draw.session, salt="s-1", shares=shares)
        assert (draw.arm, draw.canary) == (expected, "c-1")
        assert draw.flags == (FAST if expected == "canary" else FALLBACK)


def test_between_sessions_the_flags_of_the_next_draw_are_wanted() -> None:
    """So that the first step of a session runs what it drew."""
    subject = intent()
    subject.accept(desired(5, flags=FALLBACK, experiment=experiment(share=1.0)), now=0)
    assert wanted(subject).flags == FAST


def test_a_session_stays_in_its_arm_while_the_experiment_goes_on() -> None:
    """Intention to treat: another share is no reason to change sides."""
    subject = intent()
    subject.accept(desired(5, flags=FALLBACK, experiment=experiment(share=1.0)), now=0)
    draw = subject.draw("s", now=0)
    subject.accept(desired(6, flags=FALLBACK, experiment=experiment(share=0.0)), now=0)
    assert wanted(subject, draw=draw) == Wanted(flags=FAST, generation=6, cause=Cause.DESIRED)


def test_the_end_of_an_experiment_reaches_a_running_session() -> None:
    """A rollback does not wait for a viewer to leave."""
    subject = intent()
    subject.accept(desired(5, flags=FALLBACK, experiment=experiment(share=1.0)), now=0)
    draw = subject.draw("s", now=0)
    subject.accept(desired(6, flags=FALLBACK), now=0)
    assert wanted(subject, draw=draw).flags == FALLBACK


def test_no_arm_is_drawn_while_the_worker_is_at_the_fallback_by_itself() -> None:
    """Such a session would be evidence for a side it did not run."""
    subject = intent()
    subject.accept(desired(5, experiment=experiment(share=1.0)), now=0)
    subject.note_trip()
    draw = subject.draw("s", now=0)
    assert (draw.arm, draw.canary, draw.flags) == (None, None, FALLBACK)
