"""Power, clocks and memory of GPUs: read beside the loop, and None wherever they are not known."""

import logging
import math
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from controlplane.contract.telemetry import GpuReading
from worker.main import gpus, nvml
from worker.main.gpus import Board, GpuError, GpuSampler


class FakeBoard:
    """Tells what a test gave it; an exception is raised."""

    def __init__(self, *, at: int = 0, **told: Any) -> None:
        self.index = at
        self.told: dict[str, Any] = {
            "power_w": 612.5,
            "sm_clock_mhz": 1755.0,
            "memory_used_bytes": 70,
            "throttle_reasons": ["sw_power_cap"],
            **told,
        }

    def power_w(self) -> float:
        return float(self._said("power_w"))

    def sm_clock_mhz(self) -> float:
        return float(self._said("sm_clock_mhz"))

    def memory_used_bytes(self) -> int:
        return int(self._said("memory_used_bytes"))

    def throttle_reasons(self) -> list[str]:
        return list(self._said("throttle_reasons"))

    def _said(self, field: str) -> Any:
        if isinstance(self.told[field], Exception):
            raise self.told[field]
        return self.told[field]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def sampler(
    boards: Callable[[], Sequence[Board]] = list, *, clock: Callable[[], float] | None = None
) -> GpuSampler:
    return GpuSampler(boards, period_s=5.0, clock=clock or Clock())


SILENT: dict[str, Any] = dict.fromkeys(FakeBoard().told, GpuError("gone"))


def test_every_board_is_read_whole() -> None:
    subject = sampler()
    assert subject.sample([FakeBoard(), FakeBoard(at=3, throttle_reasons=[])])
    first, second = subject.readings() or []
    assert first == GpuReading(
        index=0, power_w=612.5, sm_clock_mhz=1755.0, memory_used_bytes=70,
        throttle_reasons=["sw_power_cap"],
    )  # fmt: skip
    assert (second.index, second.throttle_reasons) == (3, [])


@pytest.mark.parametrize("field", list(FakeBoard().told))
def test_a_call_that_fails_leaves_its_field_empty_and_the_others_as_they_are(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """None and never a zero: a GPU of 0 W would look like one that rests."""
    caplog.set_level(logging.INFO)
    subject = sampler()
    for _ in range(3):
        subject.sample([FakeBoard(at=1, **{field: GpuError("not supported")})])
    (reading,) = subject.readings() or []
    whole = sampler()
    whole.sample([FakeBoard(at=1)])
    assert getattr(reading, field) is None
    assert reading.model_dump(exclude={field}) == (whole.readings() or [])[0].model_dump(
        exclude={field}
    )
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [f"gpu_not_read what=gpu 1 {field} reason=not supported"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("power_w", math.nan),
        ("power_w", -3.0),
        ("sm_clock_mhz", math.inf),
        ("memory_used_bytes", -1),
    ],
)
def test_a_value_that_cannot_be_is_none_and_spoils_no_other(field: str, value: float) -> None:
    """The whole window would be refused for it, with the memory that the judge waits for."""
    subject = sampler()
    subject.sample([FakeBoard(at=0, **{field: value})])
    (reading,) = subject.readings() or []
    assert getattr(reading, field) is None
    assert reading.throttle_reasons == ["sw_power_cap"]


def test_readings_that_are_old_are_none() -> None:
    """A driver that hangs must not leave the last power on show for ever."""
    clock = Clock()
    subject = sampler(clock=clock)
    subject.sample([FakeBoard()])
    clock.now_s += gpus.MOST_PERIODS * 5.0
    assert subject.readings() is not None
    clock.now_s += 0.1
    assert subject.readings() is None


def test_a_board_that_is_gone_ends_the_readings() -> None:
    subject = sampler()
    assert subject.sample([FakeBoard()])
    assert not subject.sample([FakeBoard(**SILENT)])
    assert subject.readings() is None


def test_before_the_first_reading_there_is_none() -> None:
    assert sampler().readings() is None


def test_power_is_that_of_all_boards_or_unknown() -> None:
    known = GpuReading(index=0, power_w=600.0)
    assert gpus.total_power_w([known, GpuReading(index=1, power_w=12.5)]) == 612.5
    assert gpus.total_power_w([known, GpuReading(index=1)]) is None
    assert gpus.total_power_w([]) is None
    assert gpus.total_power_w(None) is None


def test_without_a_driver_nothing_is_said_but_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stopping = threading.Event()

    def absent() -> Sequence[Board]:
        stopping.set()
        raise GpuError("no driver")

    subject = sampler(absent)
    for _ in range(3):
        stopping.clear()
        subject.run(stopping)
    assert subject.readings() is None
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["gpu_not_read what=driver reason=no driver"]


def test_a_worker_without_gpus_stops_asking() -> None:
    subject = sampler(list)
    subject.run(threading.Event())  # returns
    assert subject.readings() is None


def test_a_driver_that_hangs_holds_nobody_up() -> None:
    """Neither who asks for the readings nor who stops the worker."""
    entered, leave = threading.Event(), threading.Event()

    class Hanging(FakeBoard):
        def power_w(self) -> float:
            entered.set()
            leave.wait()
            return 1.0

    subject = sampler(lambda: [Hanging()])
    subject.start()
    try:
        assert entered.wait(timeout=60)
        assert subject.readings() is None
        subject.stop()
    finally:
        leave.set()
        for thread in threading.enumerate():
            if thread.name == "agent-gpus":
                thread.join(timeout=60)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, ("0",)),
        ({"CUDA_VISIBLE_DEVICES": "2, 3"}, ("2", "3")),
        ({"CUDA_VISIBLE_DEVICES": "GPU-8f0a,MIG-1"}, ("GPU-8f0a", "MIG-1")),
        ({"CUDA_VISIBLE_DEVICES": ""}, ()),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, ()),
    ],
)
def test_only_the_gpus_that_cuda_shows_are_the_workers(
    told: dict[str, str], expected: tuple[str, ...] | None
) -> None:
    """Else a host of two workers would count the power of both in each."""
    assert nvml.visible(told) == expected


def test_a_list_of_gpus_that_is_none_is_named() -> None:
    with pytest.raises(GpuError, match="CUDA_VISIBLE_DEVICES has 'all'; allowed: numbers"):
        nvml.visible({"CUDA_VISIBLE_DEVICES": "all"})


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    with pytest.raises(GpuError, match="extra `gpu`"):
        nvml.boards()


def test_the_library_has_every_name_that_is_asked_of_it() -> None:
    """It ships no types; a name that is not there would be seen on a machine with a GPU only."""
    import pynvml

    for name in nvml.CALLS:
        assert callable(getattr(pynvml, name)), name
    assert issubclass(pynvml.NVMLError, Exception)
    assert pynvml.NVML_CLOCK_SM == 1
    known = [getattr(pynvml, f"nvmlClocksEventReason{name}") for name in nvml.REASONS]
    assert len(set(known)) == len(nvml.REASONS)
    assert sum(known) == pynvml.nvmlClocksEventReasonAll


def test_throttle_reasons_are_told_in_our_words_and_new_ones_by_number() -> None:
    import pynvml

    def constant(name: str) -> int:
        return int(getattr(pynvml, f"nvmlClocksEventReason{name}"))

    assert nvml.reasons(0, constant=constant) == []
    bits = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle | 1 << 40
    told = nvml.reasons(bits, constant=constant)
    assert told == ["gpu_idle", "sw_power_cap", "bit_40"]
    assert GpuReading(index=0, throttle_reasons=told).throttle_reasons == told


@pytest.mark.cuda
def test_on_a_machine_with_gpus_every_field_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    subject = sampler()
    assert subject.sample(nvml.boards())
    for reading in subject.readings() or []:
        assert None not in reading.model_dump().values()
        assert reading.power_w is not None
        assert reading.power_w > 10
