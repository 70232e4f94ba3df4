"""What the page of a worker says of its steps, its clamped numbers and its GPUs."""

from typing import Any

from controlplane.contract import vocabulary
from controlplane.contract.telemetry import Clamps, GpuReading, HeadClamps, StepTimes
from controlplane.store.session_views import ProcessView
from controlplane.web.present import process, words
from tests.api import otlp_bodies
from tests.api.control_plane import FLEET, ControlPlane, reporter
from tests.clock import START
from tests.web import visitor

NUM_LATE = 3
DEADLINE = vocabulary.STEP_BOUNDS_MS.index(vocabulary.STEP_DEADLINE_MS)
NUM_CLASSES = len(vocabulary.STEP_BOUNDS_MS)
STEPS = StepTimes(
    num_steps=10_000,
    num_at_most=[0] * DEADLINE + [10_000 - NUM_LATE] * (NUM_CLASSES - DEADLINE),
    diffusion_ms=1_480_000.0, reduce_ms=110_000.0, decoder_ms=10_000.0, encode_ms=5_000.0,
)  # fmt: skip


def said(**fields: Any) -> dict[str, str]:
    base: dict[str, Any] = {
        "received_at": START, "resident_bytes": 1, "limit_bytes": None, "flag_bytes": {},
        "lengths": (), "power_w": None, "steps": None, "clamps": None, "gpus": None,
    }  # fmt: skip
    return dict(process.facts(ProcessView(**{**base, **fields})))


def test_of_what_a_worker_does_not_tell_nothing_is_said() -> None:
    """A zero would read as a measurement."""
    assert said() == {}


def test_late_steps_are_counted_and_never_rounded_away() -> None:
    """As a share they would be 100.0 % in time."""
    facts = said(steps=STEPS)
    assert facts["steps"] == "10,000 in this incarnation, 3 of them longer than 166.7 ms"
    assert facts["mean of a step"] == (
        "149.5 ms: diffusion 148.0 ms, decoder 1.0 ms, encoder 0.5 ms;"
        " 11.0 ms of the diffusion in sums"
    )


def test_the_head_with_most_clamped_numbers_is_named() -> None:
    worst = [HeadClamps(block=2, head=59, num_keys=40, num_values=2)]
    clamps = Clamps(num_keys=1041, num_values=3, worst=worst)
    expected = "1,041 of keys, 3 of values; most in block 2, head 59: 42"
    assert said(clamps=clamps) == {"clamped to FP8": expected}
    none = Clamps(num_keys=0, num_values=0)
    assert said(clamps=none) == {"clamped to FP8": "0 of keys, 0 of values"}


def test_each_gpu_says_what_its_driver_tells() -> None:
    gpus = (
        GpuReading(index=0, power_w=612.4, sm_clock_mhz=1755, memory_used_bytes=3 * 2**30,
                   throttle_reasons=["sw_power_cap"]),
        GpuReading(index=1, power_w=600.0, throttle_reasons=[]),
        GpuReading(index=2),
    )  # fmt: skip
    assert said(gpus=gpus) == {
        "GPU 0": "612 W, 1755 MHz, 3.0 GiB used, held down by sw power cap",
        "GPU 1": "600 W",
        "GPU 2": words.NOTHING,
    }


def test_the_page_shows_what_a_window_brought(sqlite_plane: ControlPlane) -> None:
    plane = sqlite_plane
    plane.fleet("w-1")
    path = f"/fleets/{FLEET}/workers/w-1"
    assert "longer than" not in plane.client.get(path, headers=visitor.admin(plane)).text
    window = otlp_bodies.record(
        "process.window", seq=1, resident_bytes=1, num_sessions_started=1,
        steps=STEPS.model_dump(mode="json"),
        gpus=[{"index": 0, "power_w": 612.4, "throttle_reasons": []}],
    )  # fmt: skip
    answer = plane.logs("w-1", otlp_bodies.request(window, resource=reporter("w-1")))
    assert answer.status_code == 200, answer.text
    shown = plane.client.get(path, headers=visitor.admin(plane)).text
    assert "3 of them longer than 166.7 ms" in shown
    assert "<dt>GPU 0</dt><dd>612 W</dd>" in shown
