"""What is kept of a session for the group that comes after a fault."""

import os
import signal
import struct
from collections.abc import Iterator

import pytest

from worker.parallel import kept as kept_
from worker.parallel.kept import Kept, KeptSteps

_BYTES = 64
_SLOTS = 6


@pytest.fixture
def memory() -> Iterator[int]:
    memory = kept_.create(num_slots=_SLOTS, latent_bytes=_BYTES)
    yield memory
    os.close(memory)


def _mapped(memory: int) -> KeptSteps:
    return KeptSteps(memory, num_slots=_SLOTS, latent_bytes=_BYTES)


def _step(step: int, *, session: int = 3) -> Kept:
    return Kept(
        session=session,
        step=step,
        prompt_seed=2**63 - 1 - step,
        prompt_length=7,
        features=bytes([step % 7]) * 32,
        seen=bytes([step % 251]) * _BYTES,
        latent=bytes([(step + 1) % 251]) * _BYTES,
    )


def test_another_process_reads_the_steps_before_the_next_in_order(memory: int) -> None:
    """Through the same descriptor, as after a fork."""
    writer = _mapped(memory)
    for step in range(20):
        writer.put(_step(step))
    assert _mapped(memory).before(20, session=3, most=4) == [_step(n) for n in range(16, 20)]


def test_what_was_computed_but_never_delivered_is_left_out(memory: int) -> None:
    """The session goes on after the last chunk that its viewer can have seen."""
    steps = _mapped(memory)
    for step in range(9):
        steps.put(_step(step))
    assert steps.before(7, session=3, most=3) == [_step(4), _step(5), _step(6)]


def test_a_young_session_has_as_many_steps_as_it_has_run(memory: int) -> None:
    """Slots of an earlier session do not count."""
    steps = _mapped(memory)
    for step in range(_SLOTS):
        steps.put(_step(step, session=2))
    steps.put(_step(0))
    steps.put(_step(1))
    assert steps.before(2, session=3, most=4) == [_step(0), _step(1)]
    assert steps.before(0, session=3, most=4) == []


@pytest.mark.parametrize("at", [0, 5, 20, 24, 60, 100, 183])
def test_a_slot_with_one_wrong_byte_ends_the_steps(memory: int, at: int) -> None:
    """A rank that dies while it writes must not hand on half a latent."""
    steps = _mapped(memory)
    for step in range(_SLOTS):
        steps.put(_step(step))
    slot_bytes = os.fstat(memory).st_size // _SLOTS
    assert slot_bytes == 184
    held = os.pread(memory, 1, 3 * slot_bytes + at)
    os.pwrite(memory, bytes([held[0] ^ 1]), 3 * slot_bytes + at)
    assert steps.before(6, session=3, most=5) == [_step(4), _step(5)]


def test_a_writer_that_is_killed_leaves_whole_steps_or_none(memory: int) -> None:
    """SIGKILL at any moment."""
    for _ in range(5):
        begun, ready = os.pipe()
        pid = os.fork()
        if pid == 0:
            steps = _mapped(memory)
            step = 0
            while True:
                steps.put(_step(step))
                if step == _SLOTS:
                    os.write(ready, b"1")
                step += 1
        os.read(begun, 1)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(begun)
        os.close(ready)
        steps = _mapped(memory)
        slot_bytes = os.fstat(memory).st_size // _SLOTS
        numbers = [
            struct.unpack("<II", os.pread(memory, 8, slot * slot_bytes))[1]
            for slot in range(_SLOTS)
        ]
        found = [steps.before(number + 1, session=3, most=1) for number in numbers]
        assert sum(not kept for kept in found) <= 1
        assert all(kept == _step(kept.step) for held in found for kept in held)
