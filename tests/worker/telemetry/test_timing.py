"""Times of the parts of a step: the same through both timers, and never at the price of a wait."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.telemetry.device import Stream
from worker.ops.timing import MAX_PENDING, DeviceTimer, HostTimer, StepTimer, Timed


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class HostCase:
    """The timer of a CPU, whose work is done when it returns."""

    def __init__(self) -> None:
        self._clock = Clock()
        self.timer: StepTimer = HostTimer(self._clock)

    def work(self, took_ms: float) -> None:
        self._clock.now_s += took_ms / 1e3

    def catch_up(self) -> None:
        pass


class DeviceCase:
    """The timer of a device that is behind."""

    def __init__(self) -> None:
        self._stream = Stream()
        self.timer: StepTimer = DeviceTimer(num_behind=2, new_event=self._stream.event)
        self.work = self._stream.work
        self.catch_up = self._stream.catch_up


Case = HostCase | DeviceCase


@pytest.fixture(params=[HostCase, DeviceCase])
def case(request: pytest.FixtureRequest) -> Case:
    made: Case = request.param()
    return made


def step(case: Case, *stretches_ms: float, between_ms: float = 0.0) -> None:
    for took_ms in stretches_ms:
        case.timer.begin()
        case.work(took_ms)
        case.timer.end()
        case.work(between_ms)
    case.timer.close()


def test_each_step_is_told_once_in_order_with_its_stretches_added_up(case: Case) -> None:
    """What lies between two stretches, such as the work of another part, is in none."""
    told: list[Timed] = []
    for number in range(10):
        step(case, 10.0, 2.5 + number, between_ms=100.0)
        case.catch_up()
        told += case.timer.late()
    step(case, 1.0)
    step(case, 1.0)
    case.catch_up()
    told += case.timer.late()
    assert [timed.number for timed in told[:10]] == list(range(10))
    assert [timed.took_ms for timed in told[:10]] == pytest.approx([12.5 + n for n in range(10)])
    assert case.timer.late() == []


def test_a_step_without_the_part_took_no_time_of_it(case: Case) -> None:
    for _ in range(3):
        step(case)
    case.catch_up()
    assert case.timer.late()[0] == Timed(0, 0.0)


def test_a_stretch_within_another_is_a_fault_of_ours(case: Case) -> None:
    case.timer.begin()
    with pytest.raises(AssertionError, match="within another"):
        case.timer.begin()
    with pytest.raises(AssertionError, match="is not"):
        case.timer.close()


def test_nobody_who_never_asks_fills_the_memory(case: Case) -> None:
    for _ in range(3 * MAX_PENDING):
        step(case, 1.0)
    case.catch_up()
    told = case.timer.late()
    assert 0 < len(told) <= MAX_PENDING
    # A gap in the numbers says that some were lost.
    assert told[-1].number >= 3 * MAX_PENDING - 3


@given(st.lists(st.sampled_from(["step", "late", "catch up"]), max_size=60), st.integers(1, 4))
def test_a_device_is_never_waited_for_and_nothing_young_is_read(
    acts: list[str], num_behind: int
) -> None:
    """In whatever order things happen: the events refuse to be read early, or waited for."""
    stream = Stream()
    timer = DeviceTimer(num_behind=num_behind, new_event=stream.event)
    num_closed, told = 0, []
    for act in acts:
        if act == "catch up":
            stream.catch_up()
        elif act == "late":
            told += timer.late()
            assert all(timed.number < num_closed - num_behind for timed in told)
        else:
            timer.begin()
            stream.work(1.0 + num_closed)
            timer.end()
            timer.close()
            num_closed += 1
    assert told == [Timed(number, 1.0 + number) for number in range(len(told))]


def test_a_device_that_stands_still_is_asked_and_left_alone() -> None:
    stream = Stream()
    timer = DeviceTimer(num_behind=1, new_event=stream.event)
    for _ in range(5):
        timer.begin()
        timer.end()
        timer.close()
        assert timer.late() == []
    stream.catch_up()
    assert [timed.number for timed in timer.late()] == [0, 1, 2, 3]


def test_events_are_made_once_and_used_again() -> None:
    """Ten thousand steps of 240 stretches each would else make millions."""
    stream = Stream()
    timer = DeviceTimer(num_behind=2, new_event=stream.event)
    for _ in range(200):
        for _ in range(3):
            timer.begin()
            timer.end()
        timer.close()
        stream.catch_up()
        timer.late()
    assert stream.num_events <= 2 * 3 * 4


@pytest.fixture
def strict() -> Iterator[None]:
    """Within, whatever waits for the device raises."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    yield
    torch.cuda.set_sync_debug_mode(before)


@pytest.mark.cuda
@pytest.mark.usefixtures("strict")
def test_on_a_gpu_a_longer_product_takes_longer_and_nothing_waits() -> None:
    timer = DeviceTimer(num_behind=1)
    small = torch.ones(64, 64, device="cuda")
    large = torch.ones(8192, 8192, device="cuda")
    told: list[Timed] = []
    for factor in [small, large] * 20:
        timer.begin()
        torch.mm(factor, factor)
        timer.end()
        timer.close()
        told += timer.late()
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().synchronize()
    told += timer.late()
    assert [timed.number for timed in told] == list(range(len(told)))
    assert len(told) == 39
    assert sum(t.took_ms for t in told[3::2]) > sum(t.took_ms for t in told[2::2])
