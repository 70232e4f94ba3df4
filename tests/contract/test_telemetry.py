"""What a process window may say of steps, clamped numbers and GPUs, and what it may not."""

import itertools
import math
from typing import Any

import pytest
from pydantic import ValidationError

from controlplane.contract import vocabulary
from controlplane.contract.records import ProcessWindow
from controlplane.contract.telemetry import MAX_GPUS, StepTimes
from controlplane.contract.vocabulary import MAX_WORST_HEADS

NUM_CLASSES = len(vocabulary.STEP_BOUNDS_MS)
HEAD = {"block": 1, "head": 2, "num_keys": 1, "num_values": 0}


def window(**fields: Any) -> ProcessWindow:
    base = {"seq": 1, "resident_bytes": 1, "num_sessions_started": 0}
    return ProcessWindow.model_validate({**base, **fields})


def steps(**changes: Any) -> dict[str, Any]:
    base = {
        "num_steps": 30,
        "num_at_most": list(range(NUM_CLASSES)),
        "diffusion_ms": 4500.0,
        "reduce_ms": 300.0,
        "decoder_ms": 30.0,
        "encode_ms": 30.0,
    }
    return {**base, **changes}


def clamps(*worst: dict[str, Any]) -> dict[str, Any]:
    return {"num_keys": 20, "num_values": 0, "worst": list(worst)}


def test_the_classes_of_step_times_rise_and_one_ends_at_the_deadline() -> None:
    """Steps in time and late ones must never share a class."""
    bounds = vocabulary.STEP_BOUNDS_MS
    assert all(low < high for low, high in itertools.pairwise(bounds))
    assert vocabulary.STEP_DEADLINE_MS in bounds


def test_the_classes_beside_the_deadline_are_the_narrowest() -> None:
    """147 and 163 ms are different stories there; 80 and 100 ms are one."""
    widths = [high - low for low, high in itertools.pairwise(vocabulary.STEP_BOUNDS_MS)]
    deadline = vocabulary.STEP_BOUNDS_MS.index(vocabulary.STEP_DEADLINE_MS)
    assert max(widths[deadline - 1 : deadline + 1]) <= 5
    assert min(widths) in widths[deadline - 2 : deadline + 2]


def test_a_step_of_exactly_the_deadline_is_not_late() -> None:
    """As a session of exactly the floor meets it."""
    deadline = vocabulary.STEP_BOUNDS_MS.index(vocabulary.STEP_DEADLINE_MS)
    counts = [0] * deadline + [1] * (NUM_CLASSES - deadline)
    assert StepTimes.model_validate(steps(num_steps=3, num_at_most=counts)).num_late == 2


def test_a_window_of_a_release_older_says_nothing_of_them() -> None:
    """Nothing is None, and no zero: nobody has counted."""
    told = window()
    assert (told.steps, told.clamps, told.gpus) == (None, None, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_at_most": [1, 0, *[2] * (NUM_CLASSES - 2)]},
        {"num_steps": NUM_CLASSES - 2},
        {"num_at_most": [0] * (NUM_CLASSES - 1)},
        {"num_at_most": [0] * (NUM_CLASSES + 1)},
        {"num_at_most": [-1, *[0] * (NUM_CLASSES - 1)]},
        {"num_at_most": [True] * NUM_CLASSES},
        {"num_steps": 2**63},
        {"diffusion_ms": math.nan},
        {"decoder_ms": -0.5},
        {"encode_ms": None},
    ],
)
def test_step_times_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="steps"):
        window(steps=steps(**changes))


@pytest.mark.parametrize(
    "worst",
    [
        (HEAD, HEAD),
        ({**HEAD, "num_keys": 21},),
        ({**HEAD, "num_values": 1},),
        ({**HEAD, "block": -1},),
        tuple({**HEAD, "head": head} for head in range(MAX_WORST_HEADS + 1)),
    ],
)
def test_clamped_numbers_that_do_not_add_up_are_refused(worst: tuple[dict[str, Any], ...]) -> None:
    with pytest.raises(ValidationError, match="clamps"):
        window(clamps=clamps(*worst))


def test_as_many_heads_are_named_as_may_be() -> None:
    heads = [{**HEAD, "head": head} for head in range(MAX_WORST_HEADS)]
    told = window(clamps=clamps(*heads)).clamps
    assert told is not None
    assert [one.head for one in told.worst] == list(range(MAX_WORST_HEADS))


@pytest.mark.parametrize(
    "gpus",
    [
        [{"index": 0, "power_w": math.inf}],
        [{"index": 0, "sm_clock_mhz": -1}],
        [{"index": 0, "throttle_reasons": ["<script>"]}],
        [{"power_w": 1.0}],
        [{"index": index} for index in range(MAX_GPUS + 1)],
    ],
)
def test_readings_of_gpus_that_cannot_be_are_refused(gpus: list[dict[str, Any]]) -> None:
    with pytest.raises(ValidationError, match="gpus"):
        window(gpus=gpus)
