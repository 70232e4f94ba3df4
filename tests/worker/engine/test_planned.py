"""The session as rank 0 plans it; no process needed."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker import features
from worker.cache import prompt as prompt_cache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.engine.planned import PlannedSession
from worker.parallel.plan import Action, StepPlan
from worker.prompts import Prompt
from worker.shapes import FULL_MODEL

FIRST = Prompt(num_tokens=7, seed=5)
FOX = Prompt(num_tokens=11, seed=9)


def session(model: ModelConfig = TINY_MODEL, *, num_ahead: int = 1) -> PlannedSession:
    return PlannedSession.begun(model, number=4, seed=3, prompt=FIRST, num_ahead=num_ahead)


def next_plan(subject: PlannedSession) -> StepPlan:
    """With one more credit for the step after it."""
    plan = subject.planned(StepPlan(launch=1, step=8))
    subject.credit(prompt=None, features=None)
    return plan


def prompt_of(plan: StepPlan) -> Prompt:
    return Prompt(num_tokens=plan.first_forward_length, seed=plan.prompt_seed)


@pytest.mark.parametrize("model", [FULL_MODEL, TINY_MODEL, TINY_EDGE_MODEL])
@given(changes=st.sets(st.integers(min_value=0, max_value=120)))
def test_steps_go_on_and_frames_begin_anew_with_every_prompt(
    model: ModelConfig, changes: set[int]
) -> None:
    """However prompts fall on wraps and resets, 41, 42 and 43 of `full` among them."""
    subject = session(model)
    expected_frame, is_due = 0, False
    for step in range(124):
        plan = next_plan(subject)
        if is_due:
            expected_frame = min(expected_frame, model.window - 1)
        assert (plan.session_step, plan.session, plan.launch, plan.step) == (step, 4, 1, 8)
        assert plan.action is (Action.STEP if step else Action.START)
        assert (plan.is_rebuilt, plan.frame) == (is_due, expected_frame)
        assert plan.position < model.reset_period + model.window
        if is_due:
            assert (plan.position, plan.shift) == (expected_frame, 0)
            assert prompt_of(plan) == replace(FOX, seed=step)
        expected_frame += 1
        is_due = step in changes
        if is_due:
            subject.credit(prompt=replace(FOX, seed=step + 1), features=None)


def test_a_changed_session_goes_on_as_the_cache_of_a_change_says() -> None:
    """The one definition of a change is that of `worker.cache.prompt`."""
    subject = session()
    for _ in range(13):
        next_plan(subject)
    change = prompt_cache.changed(TINY_MODEL, subject.cursor, length=FOX.num_tokens)
    subject.credit(prompt=FOX, features=None)
    plan = next_plan(subject)
    assert (plan.frame, plan.position) == (change.cursor.num_frames, change.cursor.position)
    assert plan.first_forward_length == change.first_forward.num_tokens


def test_of_two_prompts_before_a_step_the_later_one_counts() -> None:
    """Two rebuilds in a row would show nothing of the first."""
    subject = session()
    next_plan(subject)
    subject.credit(prompt=FIRST, features=None)
    subject.credit(prompt=FOX, features=None)
    plans = [next_plan(subject) for _ in range(2)]
    assert prompt_of(plans[0]) == FOX
    assert [plan.is_rebuilt for plan in plans] == [True, False]


def test_features_hold_until_others_come() -> None:
    """Zeros end them."""
    subject = session()
    loud = bytes(range(features.NUM_BYTES))
    told = [next_plan(subject).features]
    for said in (loud, None, features.NONE):
        subject.credit(prompt=None, features=said)
        told.append(next_plan(subject).features)
    assert told == [features.NONE, loud, loud, features.NONE]


def test_no_step_is_planned_that_the_consumer_has_no_room_for() -> None:
    """It would fill the memory of the supervisor."""
    subject = session(num_ahead=2)
    for _ in range(2):
        subject.planned(StepPlan(launch=0, step=0))
    with pytest.raises(AssertionError, match="no room for a step"):
        subject.planned(StepPlan(launch=0, step=0))


def test_a_resumed_session_goes_on_with_what_is_kept_and_what_is_wanted() -> None:
    """A prompt that had been asked for and had not come to effect comes with the first step."""
    fields: dict[str, Any] = {
        "number": 2, "seed": 5, "prompt": FIRST, "num_ahead": 2, "step": 90, "num_kept": 3,
        "features": bytes([1]) * 32,
    }  # fmt: skip
    same = PlannedSession.resumed(TINY_MODEL, wanted=FIRST, **fields).planned(
        StepPlan(launch=1, step=8)
    )
    other = PlannedSession.resumed(TINY_MODEL, wanted=FOX, **fields).planned(
        StepPlan(launch=1, step=8)
    )
    for plan in (same, other):
        assert plan.action is Action.RESUME
        assert (plan.session_step, plan.frame, plan.position, plan.shift) == (90, 3, 3, 0)
        assert plan.features == bytes([1]) * 32
    assert (same.prompt_seed, same.is_rebuilt) == (FIRST.seed, False)
    assert (other.prompt_seed, other.is_rebuilt) == (FOX.seed, True)
