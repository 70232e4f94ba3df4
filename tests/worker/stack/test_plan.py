"""The numbered step plan: what must not pass as a plan does not."""

import random

import pytest

from worker.parallel import plan as step_plan
from worker.parallel.plan import Action, Control, PlanError, StepPlan

_PLAN = StepPlan(
    launch=3,
    step=41,
    action=Action.STEP,
    control=Control.COMMIT,
    generation=2**40,
    word=bytes(range(8)),
    session=7,
    session_step=40,
    first_forward_length=12,
    seed=2**62,
    prompt_seed=2**63 - 1,
    is_rebuilt=True,
    frame=3,
    features=bytes(range(32)),
    position=9,
    shift=10,
)


def test_a_plan_survives_its_packing() -> None:
    """Every field: a lost one would let two ranks differ in silence."""
    assert step_plan.unpack(step_plan.pack(_PLAN), launch=3, step=41) == _PLAN


def test_any_flipped_bit_is_noticed() -> None:
    """The checksum covers the whole packet."""
    packet = step_plan.pack(_PLAN)
    bit = random.Random(1)
    for at in range(len(packet)):
        broken = bytearray(packet)
        broken[at] ^= 1 << bit.randrange(8)
        with pytest.raises(PlanError, match="checksum"):
            step_plan.unpack(bytes(broken), launch=3, step=41)


@pytest.mark.parametrize(("launch", "step"), [(3, 40), (3, 42), (2, 41)])
def test_a_plan_with_another_number_is_refused(launch: int, step: int) -> None:
    """A rank that is a step off must raise, not wait in a collective."""
    with pytest.raises(PlanError, match="launch 3, step 41; expected"):
        step_plan.unpack(step_plan.pack(_PLAN), launch=launch, step=step)


def test_a_plan_of_another_size_is_refused() -> None:
    """A short read must not be taken for a plan."""
    with pytest.raises(PlanError, match="bytes"):
        step_plan.unpack(step_plan.pack(_PLAN)[:-1], launch=3, step=41)
