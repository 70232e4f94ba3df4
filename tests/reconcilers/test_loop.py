"""The loop ticks only while it leads, loses no nudge, and survives a beat that fails."""

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from controlplane.clock import SystemClock
from controlplane.reconcilers.loop import MAX_TICKS_A_RUN, Loop
from controlplane.store.transaction import Database
from tests.clock import FakeClock


class Recorder:
    """A reconciler of two beats that notes when it was carried out."""

    def __init__(self, beat: Callable[[], None] = lambda: None) -> None:
        self.ticks: list[datetime] = []
        self.num_last_beats = 0
        self._beat = beat

    def beats(self, now: datetime, *, epoch: int) -> Iterator[Callable[[], None]]:
        assert epoch > 0
        self.ticks.append(now)
        yield self._beat
        yield self._count

    def _count(self) -> None:
        self.num_last_beats += 1


def loop_of(database: Database, clock: FakeClock, *recorders: Recorder, holder: str = "a") -> Loop:
    return Loop(database, recorders, clock=clock, holder=holder, tick=timedelta(seconds=1))


def test_a_beat_that_fails_ends_neither_the_tick_nor_the_process(
    database: Database, clock: FakeClock
) -> None:
    def fail() -> None:
        message = "a broken invariant"
        raise AssertionError(message)

    first, second = Recorder(fail), Recorder()
    loop = loop_of(database, clock, first, second)
    loop.tick()
    loop.tick()
    assert (first.num_last_beats, second.num_last_beats) == (2, 2)


def test_a_nudge_during_a_tick_makes_another_one(database: Database, clock: FakeClock) -> None:
    nudges = [True]
    loop: Loop

    def nudge_once() -> None:
        if nudges.pop() if nudges else False:
            loop.nudge()

    recorder = Recorder(nudge_once)
    loop = loop_of(database, clock, recorder)
    loop.run()
    assert len(recorder.ticks) == 2


def test_a_stream_of_nudges_is_bounded(database: Database, clock: FakeClock) -> None:
    loop: Loop

    def nudge() -> None:
        loop.nudge()

    recorder = Recorder(nudge)
    loop = loop_of(database, clock, recorder)
    loop.run()
    assert len(recorder.ticks) == MAX_TICKS_A_RUN


def test_who_does_not_lead_does_not_tick(database: Database, clock: FakeClock) -> None:
    leader, other = Recorder(), Recorder()
    first = loop_of(database, clock, leader, holder="a")
    second = loop_of(database, clock, other, holder="b")
    first.tick()
    second.tick()
    assert (len(leader.ticks), len(other.ticks)) == (1, 0)
    assert second.last_tick_at is None
    clock.advance(minutes=1)  # the first is gone: its lease ends
    second.tick()
    first.tick()
    assert (len(leader.ticks), len(other.ticks)) == (1, 1)


def test_a_nudge_brings_the_next_tick_forward(sqlite_database: Database) -> None:
    """The timer alone would come an hour later."""
    ticked = threading.Semaphore(0)
    recorder = Recorder(_releasing(ticked))
    loop = Loop(
        sqlite_database,
        (recorder,),
        clock=SystemClock(),
        holder="a",
        tick=timedelta(hours=1),
    )
    loop.start()
    try:
        assert ticked.acquire(timeout=30)  # the first, at the start
        loop.nudge()
        assert ticked.acquire(timeout=30)
    finally:
        loop.stop()


def _releasing(semaphore: threading.Semaphore) -> Callable[[], None]:
    def release() -> None:
        semaphore.release()

    return release


def test_who_knows_that_the_leader_is_dead_takes_over_at_once(
    database: Database, clock: FakeClock
) -> None:
    """A crash of the embedded control plane must not cost a canary its lease."""
    killed, started_again = Recorder(), Recorder()
    loop_of(database, clock, killed, holder="a").tick()
    loop = loop_of(database, clock, started_again, holder="b")
    loop.tick()
    assert started_again.ticks == []
    loop.take_over()
    loop.tick()
    assert len(started_again.ticks) == 1
