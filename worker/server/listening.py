"""Hears what a viewer says while its session runs. A bad message is answered and changes nothing.

A viewer that says too much is told so, and not heard for a while: what it sends then waits in its
own socket, so that it cannot keep the worker from sending frames.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import assert_never

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from worker.server import steering, telling
from worker.server.ports import Performance
from worker.server.steering import FeaturesMessage, Message, PromptMessage, Rejection

# Audio and control for each of 24 frames a second, and a word beside them. A step has four.
MAX_MESSAGES_PER_S = 50


class Allowance:
    """At most so many messages within any one second."""

    def __init__(self, *, num_per_s: int) -> None:
        self._taken_at: deque[float] = deque(maxlen=num_per_s)

    def wait_s(self, now: float) -> float:
        """Seconds until one more is allowed; if 0, that one is counted."""
        if len(self._taken_at) == self._taken_at.maxlen and now - self._taken_at[0] < 1:
            return 1 - (now - self._taken_at[0])
        self._taken_at.append(now)
        return 0.0


class Listening:
    """Passes on what `viewer` says to `performance`."""

    def __init__(
        self, viewer: ServerConnection, performance: Performance, *, clock: Callable[[], float]
    ) -> None:
        self._viewer = viewer
        self._performance = performance
        self._clock = clock
        self._allowance = Allowance(num_per_s=MAX_MESSAGES_PER_S)

    async def run(self) -> None:
        """Listen until the viewer has gone."""
        try:
            while True:
                await self._hear(await self._viewer.recv())
        except ConnectionClosed:
            return

    async def _hear(self, text: str | bytes) -> None:
        wait_s = self._allowance.wait_s(self._clock())
        if wait_s > 0:
            await self._reject(_too_many())
            await asyncio.sleep(wait_s)
            return
        message = steering.parsed(text)
        if isinstance(message, Rejection):
            await self._reject(message)
        else:
            self._pass_on(message)

    def _pass_on(self, message: Message) -> None:
        match message:
            case PromptMessage():
                self._performance.change_prompt(message.text)
            case FeaturesMessage(type="audio"):
                self._performance.take_features(audio=message.features)
            case FeaturesMessage():
                self._performance.take_features(control=message.features)
            case _:
                assert_never(message)

    async def _reject(self, rejection: Rejection) -> None:
        await telling.tell(self._viewer, type="rejected", **asdict(rejection))


def _too_many() -> Rejection:
    return Rejection(
        key="message",
        value=f"message {MAX_MESSAGES_PER_S + 1} within a second",
        allowed=f"at most {MAX_MESSAGES_PER_S} messages within a second",
    )
