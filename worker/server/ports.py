"""What the server asks of whoever owns the engine and keeps the records."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from typing import Protocol

from controlplane.contract.records import SessionEnded
from worker.engine.api import Chunk
from worker.server.refusals import Refusal
from worker.server.requests import Request


class Ending(StrEnum):
    """What brought a session to its end, as the server sees it."""

    VIEWER_LEFT = "viewer_left"
    DRAINED = "drained"
    STREAM_ENDED = "stream_ended"  # the engine yields no more: it has failed


class Performance(Protocol):
    """One session while it is streamed."""

    @property
    def session(self) -> str:
        """Id of the session."""
        ...

    @property
    def flags(self) -> Mapping[str, str]:
        """Flags drawn for it."""
        ...

    def chunks(self) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """The chunks in order; leaving the context frees the engine."""
        ...

    def change_prompt(self, text: str) -> None:
        """Another prompt from the next step that is planned; its first chunk says `is_prompt_new`.

        Of two that come before that step, the later one counts.
        """
        ...

    def take_features(
        self, *, audio: Sequence[float] | None = None, control: Sequence[float] | None = None
    ) -> None:
        """Features from the next step that is planned, until others come; None leaves a kind."""
        ...

    def send_began(self) -> None:
        """A write to the viewer begins."""
        ...

    def send_ended(self) -> None:
        """The write has returned."""
        ...

    def deliver(self, chunk: Chunk) -> None:
        """The last frame of `chunk` has just been handed over."""
        ...

    async def finish(self, ending: Ending) -> SessionEnded:
        """End the session and put its last record in the spool."""
        ...


class Stage(Protocol):
    """What the server asks of whoever owns the engine."""

    @property
    def draining(self) -> asyncio.Event:
        """Set while running sessions are to end."""
        ...

    def refusal(self) -> Refusal | None:
        """Why no session may start now."""
        ...

    async def begin(self, request: Request) -> Performance:
        """Start a session; its record is in the spool, its flags are effective or on their way.

        Raises: Refusal.
        """
        ...
