"""The page about process windows names all that is in one, by the words of the code."""

from pathlib import Path

import pytest

from controlplane.contract import vocabulary
from controlplane.contract.records import ProcessWindow, Record
from controlplane.contract.telemetry import Clamps, GpuReading, StepTimes
from worker.main import nvml

PAGE = (Path(__file__).parents[2] / "docs" / "process-windows.md").read_text()
FIELDS = {
    *(ProcessWindow.model_fields.keys() - Record.model_fields.keys() - {"steps", "clamps", "gpus"}),
    *StepTimes.model_fields,
    *Clamps.model_fields,
    *(GpuReading.model_fields.keys() - {"index"}),
}


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_is_explained(name: str) -> None:
    assert any(f"{mark}{name}`" in PAGE for mark in ("`", "`steps.", "`clamps.", "`gpus[]."))


@pytest.mark.parametrize("word", sorted(nvml.REASONS.values()))
def test_every_reason_to_throttle_is_listed(word: str) -> None:
    assert f"`{word}`" in PAGE


def test_the_classes_of_step_times_are_those_of_the_code() -> None:
    *bounds, last = (f"{bound:.4g}" for bound in vocabulary.STEP_BOUNDS_MS)
    deadline = f"{vocabulary.STEP_DEADLINE_MS:.4g}"
    told = PAGE.replace(f"{deadline} (the deadline, 4 frames at 24 fps)", deadline)
    assert f"at most {', '.join(bounds)} and {last} ms" in told
