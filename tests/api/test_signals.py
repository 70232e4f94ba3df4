"""Held calls wake when their topic is told, from whatever thread, and a signal is never lost."""

import asyncio
import threading

from controlplane.api import signals
from controlplane.api.signals import Signals


def test_a_notify_from_another_thread_wakes_the_waiter() -> None:
    """Ticks run in the scheduler's thread, calls wait in the event loop's."""

    async def waits() -> bool:
        board = Signals()
        with board.subscription("worker:1") as changed:
            threading.Thread(target=board.notify, args=("worker:1",)).start()
            return await signals.wait(changed, timeout_s=30)

    assert asyncio.run(waits())


def test_a_signal_between_the_look_and_the_wait_is_kept() -> None:
    async def waits() -> bool:
        board = Signals()
        with board.subscription("worker:1") as changed:
            board.notify("worker:1")
            await asyncio.sleep(0)
            return await signals.wait(changed, timeout_s=30)

    assert asyncio.run(waits())


def test_another_topic_wakes_nobody() -> None:
    async def waits() -> bool:
        board = Signals()
        with board.subscription("worker:1") as changed:
            board.notify("worker:2")
            return await signals.wait(changed, timeout_s=0)

    assert not asyncio.run(waits())


def test_every_waiter_of_a_topic_wakes() -> None:
    async def waits() -> list[bool]:
        board = Signals()
        with board.subscription("tick") as one, board.subscription("tick") as two:
            board.notify("tick")
            return [await signals.wait(event, timeout_s=30) for event in (one, two)]

    assert asyncio.run(waits()) == [True, True]


def test_nothing_is_left_behind_when_a_call_ends() -> None:
    """A worker that reconnects for months must not leave an entry each time."""

    async def waits() -> int:
        board = Signals()
        with board.subscription("worker:1"):
            pass
        return board.num_waiting() + len(board._waiting)

    assert asyncio.run(waits()) == 0


def test_a_notify_after_the_loop_has_closed_is_harmless() -> None:
    """At shutdown the last tick may still tell of something."""
    board = Signals()
    loop = asyncio.new_event_loop()
    board._waiting["tick"] = {(loop, asyncio.Event())}
    loop.close()

    board.notify("tick")


def test_closing_wakes_every_held_call() -> None:
    """Else a shutdown would wait twenty seconds for calls that have nothing to say."""

    async def waits() -> tuple[bool, bool]:
        board = Signals()
        with board.subscription("worker:1") as changed:
            board.close()
            return await signals.wait(changed, timeout_s=30), board.is_closed

    assert asyncio.run(waits()) == (True, True)
