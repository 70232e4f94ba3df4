"""A tensor as it was k copies ago: never newer, never half a copy, never waited for."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.worker.telemetry.device import Stream
from worker.ops.late import LateCopies
from worker.probes.synchronisation import HostReads


@given(st.integers(1, 4), st.integers(0, 12))
def test_what_is_read_is_k_copies_old(num_behind: int, num_copies: int) -> None:
    source = torch.zeros(2, dtype=torch.int64)
    copies = LateCopies(source, num_behind=num_behind)
    for number in range(num_copies):
        source.fill_(number)
        copies.start()
    read = copies.read()
    if num_copies <= num_behind:
        assert read is None
    else:
        assert read is not None
        assert read.tolist() == [num_copies - 1 - num_behind] * 2


@given(st.integers(1, 4), st.lists(st.sampled_from(["start", "read", "catch up"]), max_size=50))
def test_a_copy_that_is_under_way_is_never_read(num_behind: int, acts: list[str]) -> None:
    """The device is somewhere: what it has not passed may be half there."""
    stream = Stream()
    source = torch.zeros(1, dtype=torch.int64)
    copies = LateCopies(source, num_behind=num_behind, new_event=stream.event)
    num_started = num_done = 0
    for act in acts:
        if act == "start":
            num_started += 1
            source.fill_(num_started)
            copies.start()
        elif act == "catch up":
            stream.catch_up()
            num_done = num_started
        else:
            read = copies.read()
            expected = num_started - num_behind
            is_there = 1 <= expected <= num_done
            assert (None if read is None else int(read)) == (expected if is_there else None)


def test_a_device_that_stands_still_lets_nothing_through() -> None:
    """The shortest case of the property above, which need not draw it."""
    stream = Stream()
    source = torch.zeros(1, dtype=torch.int64)
    copies = LateCopies(source, new_event=stream.event)
    copies.start()
    copies.start()
    assert copies.read() is None
    stream.catch_up()
    assert copies.read() is not None


def test_what_was_read_does_not_change_with_the_next_copy() -> None:
    source = torch.zeros(1)
    copies = LateCopies(source)
    copies.start()
    copies.start()
    read = copies.read()
    source.fill_(7.0)
    copies.start()
    copies.start()
    assert read is not None
    assert read.tolist() == [0.0]


def test_no_operation_asks_the_device_for_a_number() -> None:
    copies = LateCopies(torch.ones(3))
    with HostReads() as reads:
        for _ in range(4):
            copies.start()
            copies.read()
    assert reads.seen.total() == 0


@pytest.mark.cuda
def test_on_a_gpu_copies_arrive_without_a_wait() -> None:
    before = torch.cuda.get_sync_debug_mode()
    source = torch.zeros(4, dtype=torch.int64, device="cuda")
    copies = LateCopies(source)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for _ in range(5):
            source.add_(1)
            copies.start()
            copies.read()
    finally:
        torch.cuda.set_sync_debug_mode(before)
    torch.cuda.synchronize()
    read = copies.read()
    assert read is not None
    assert read.tolist() == [4] * 4
