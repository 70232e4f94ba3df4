"""The histogram of step times: what is counted, what is not, and that no step is lost."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.contract import vocabulary
from controlplane.contract.records import ProcessWindow
from controlplane.contract.telemetry import StepTimes
from tests.worker.agent import build
from tests.worker.agent.build import MemoryControlPlane, desired
from worker.agent.measure import Parts
from worker.agent.steps import StepTally

times_ms = st.one_of(st.floats(0, 400), st.sampled_from(vocabulary.STEP_BOUNDS_MS))


def parts(diffusion_ms: float = 0.0, **others: float) -> Parts:
    base = {"reduce_ms": 0.0, "decoder_ms": 0.0, "encode_ms": 0.0}
    return Parts(diffusion_ms=diffusion_ms, **{**base, **others})


def counted(*steps: Parts) -> StepTimes | None:
    tally = StepTally()
    for step in steps:
        tally.add(step)
    return tally.times()


@given(st.lists(times_ms, min_size=1, max_size=50))
def test_every_step_is_in_every_class_that_it_fits_in(steps_ms: list[float]) -> None:
    times = counted(*(parts(each) for each in steps_ms))
    assert times is not None
    assert times.num_steps == len(steps_ms)
    expected = [sum(ms <= bound for ms in steps_ms) for bound in vocabulary.STEP_BOUNDS_MS]
    assert times.num_at_most == expected
    assert times.num_late == sum(ms > vocabulary.STEP_DEADLINE_MS for ms in steps_ms)


def test_a_step_takes_its_diffusion_and_what_decoder_and_encoder_expose() -> None:
    """The sums are a part of the diffusion: counted once."""
    in_time = parts(160.0, reduce_ms=20.0, decoder_ms=4.0, encode_ms=2.0)
    late = parts(160.0, reduce_ms=20.0, decoder_ms=4.0, encode_ms=3.0)
    times = counted(in_time, late)
    assert times is not None
    assert times.num_late == 1
    sums = (times.diffusion_ms, times.reduce_ms, times.decoder_ms, times.encode_ms)
    assert sums == (320.0, 40.0, 8.0, 5.0)


@pytest.mark.parametrize("broken", [math.nan, math.inf, -1.0])
def test_a_time_that_is_none_counts_for_nothing(broken: float) -> None:
    """In a sum it would take all that was measured with it, and the window would be refused."""
    assert counted(parts(1.0, decoder_ms=broken)) is None
    times = counted(parts(1.0), parts(broken))
    assert times is not None
    assert (times.num_steps, times.diffusion_ms) == (1, 1.0)


def test_before_the_first_step_there_is_nothing_to_tell() -> None:
    assert counted() is None


def test_a_window_tells_of_all_sessions_but_not_of_their_first_forwards(tmp_path: Path) -> None:
    """The first chunk waits for the first forward, and sessions come and go in one incarnation."""
    plane = MemoryControlPlane(desired())
    with build.agent(tmp_path, plane=plane) as agent:
        agent.on_desired(desired())
        agent.write_process_window({"resident_bytes": 5})
        for _ in range(2):
            with agent.open_session(first_forward_length=1) as session:
                session.deliver(num_frames=4, parts=parts(900.0))
                session.deliver(num_frames=4, parts=parts(150.0))
                session.deliver(num_frames=4)
                session.deliver(num_frames=4, parts=parts(170.0))
        agent.write_process_window({"resident_bytes": 5})
    before, after = [r for _, r in plane.records if isinstance(r, ProcessWindow)]
    assert before.steps is None
    assert after.steps is not None
    assert (after.steps.num_steps, after.steps.num_late) == (4, 2)
    assert after.steps.diffusion_ms == 640.0


def test_a_server_that_counts_its_steps_itself_is_believed(tmp_path: Path) -> None:
    own = counted(parts(100.0))
    plane = MemoryControlPlane(desired())
    with build.agent(tmp_path, plane=plane) as agent:
        agent.on_desired(desired())
        agent.write_process_window({"resident_bytes": 5, "steps": own})
    (window,) = [r for _, r in plane.records if isinstance(r, ProcessWindow)]
    assert window.steps == own
