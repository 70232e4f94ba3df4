"""The three ways to watch what FP8 clamps: what they know, when, and what it costs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from worker.cache.scales import ClampCounts
from worker.ops.fp8_monitor import MONITORS, Async, Clamps, Fp8Monitor, Off, Sync
from worker.probes.synchronisation import HostReads

SHAPE = {"num_blocks": 2, "num_heads": 3}


def fresh() -> ClampCounts:
    return ClampCounts(**SHAPE, device=torch.device("cpu"))


def clamp(cache: ClampCounts, number: int = 1, *, kind: int = 0, block: int = 1) -> None:
    cache.on_device_2BH[kind, block].add_(number)


def total(monitor: Fp8Monitor) -> int | None:
    counts = monitor.counts()
    return None if counts is None else int(counts.sum())


class Slow:
    """Counts of a device that may not have come as far as the host: a copy is there when told."""

    def __init__(self) -> None:
        self.on_device_2BH = torch.zeros((2, 2, 3), dtype=torch.int64)
        self.published: list[Tensor] = []
        self.num_done = 0

    def publish(self) -> None:
        self.published.append(self.on_device_2BH.clone())

    def late(self) -> Tensor | None:
        wanted = len(self.published) - 1  # never the newest
        return self.published[wanted - 1] if 1 <= wanted <= self.num_done else None

    def catch_up(self) -> None:
        self.num_done = len(self.published)


def test_a_cache_is_what_a_monitor_watches() -> None:
    clamps: Clamps = fresh()
    assert clamps.on_device_2BH.shape == (2, 2, 3)


def test_every_variant_of_the_flag_is_there() -> None:
    assert {name: type(make()) for name, make in MONITORS.items()} == {
        "off": Off,
        "async": Async,
        "sync": Sync,
    }


def test_off_knows_nothing_and_does_not_say_zero() -> None:
    cache, monitor = fresh(), Off()
    for _ in range(5):
        clamp(cache)
        monitor.stepped(cache)
    assert monitor.counts() is None
    assert cache.late() is None


@pytest.mark.parametrize("name", ["async", "sync"])
def test_before_the_first_step_in_fp8_nothing_is_known(name: str) -> None:
    monitor = MONITORS[name]()
    monitor.stepped(None)
    assert monitor.counts() is None


def test_async_tells_what_was_so_a_step_ago() -> None:
    cache, monitor = fresh(), Async()
    told = []
    for _ in range(4):
        clamp(cache)
        monitor.stepped(cache)
        told.append(total(monitor))
    assert told == [None, 3, 6, 9]


def test_sync_tells_what_is_so_now() -> None:
    cache, monitor = fresh(), Sync()
    told = []
    for number in (1, 0, 2):
        clamp(cache, number)
        monitor.stepped(cache)
        told.append(total(monitor))
    assert told == [3, 3, 9]


def test_only_sync_makes_the_host_wait() -> None:
    """The detector of the probes finds the fault, and finds none in the others."""
    for name, make in MONITORS.items():
        cache, monitor = fresh(), make()
        with HostReads() as reads:
            for _ in range(5):
                clamp(cache)
                monitor.stepped(cache)
                if name != "sync":
                    monitor.counts()
        assert (reads.seen.total() > 0) == (name == "sync"), (name, reads.seen)


def test_counts_stay_with_their_block_head_and_kind() -> None:
    for name in ("async", "sync"):
        cache, monitor = fresh(), MONITORS[name]()
        clamp(cache, 2, kind=1, block=0)
        monitor.stepped(cache)
        monitor.stepped(cache)
        counts = monitor.counts()
        assert counts is not None
        assert counts.tolist() == [[[0] * 3, [0] * 3], [[2] * 3, [0] * 3]]


@pytest.mark.parametrize("name", ["async", "sync"])
def test_the_last_steps_of_a_session_are_counted_when_the_next_has_begun(name: str) -> None:
    """A session that clamped in its last step would else look clean for ever."""
    monitor = MONITORS[name]()
    for _ in range(3):
        cache = fresh()
        for _ in range(2):
            clamp(cache)
            monitor.stepped(cache)
        monitor.stepped(None)  # in between, a cache without FP8
    assert total(monitor) == 3 * 2 * 3


def test_what_is_known_stays_known_while_the_rest_is_under_way() -> None:
    """Between two caches the counts would else fall, and rise again when the device comes."""
    monitor, cache = Async(), Slow()
    for _ in range(2):
        cache.on_device_2BH += 1
        monitor.stepped(cache)
        cache.num_done = 1
    assert total(monitor) == 12
    monitor.stepped(Slow())
    assert total(monitor) == 12  # the last copy is not there yet
    cache.catch_up()
    assert total(monitor) == 24


acts = st.lists(st.sampled_from(["step", "step", "other", "none", "catch up", "ask"]), max_size=60)


@given(acts)
def test_async_never_falls_never_runs_ahead_and_loses_nothing(acts: list[str]) -> None:
    """However far the device is behind, and however often the cache changes."""
    monitor, cache, old = Async(), Slow(), list[Slow]()
    clamped = before = 0
    for act in acts:
        if act == "step":
            cache.on_device_2BH += 1
            clamped += 12
            monitor.stepped(cache)
        elif act in ("other", "none"):
            old.append(cache)
            cache = Slow()
            if act == "none":
                monitor.stepped(None)
        elif act == "catch up":
            for each in (*old, cache):
                each.catch_up()
        else:
            known = total(monitor) or 0
            assert before <= known <= clamped
            before = known
    monitor.stepped(None)
    for each in (*old, cache):
        each.catch_up()
    # More caches than may be under way at once lose only what never arrived.
    known = total(monitor) or 0
    assert before <= known <= clamped
    if len(old) < 8:
        assert known == clamped


@pytest.mark.cuda
def test_on_a_gpu_async_does_not_wait_and_sync_does() -> None:
    before = torch.cuda.get_sync_debug_mode()
    for name in ("off", "async", "sync"):
        cache = ClampCounts(**SHAPE, device=torch.device("cuda"))
        monitor = MONITORS[name]()
        cache.publish()  # memory that the device can write to is made once, and may wait
        torch.cuda.set_sync_debug_mode("error")
        try:
            if name == "sync":
                with pytest.raises(RuntimeError, match="synchroniz"):
                    monitor.stepped(cache)
            else:
                for _ in range(5):
                    cache.on_device_2BH.add_(1)
                    monitor.stepped(cache)
                    monitor.counts()
        finally:
            torch.cuda.set_sync_debug_mode(before)
