"""One session on the engine: what the server streams, what the agent records."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace

from controlplane.contract.records import SessionEnded
from controlplane.contract.vocabulary import Outcome, Reason
from worker import prompts
from worker.agent.measure import Parts
from worker.agent.sessions import Session
from worker.engine.api import Chunk, Engine, Fault
from worker.features import Features
from worker.prompts import Prompt
from worker.server.ports import Ending

# A group that dies ends the stream and tells its fault in another queue; the two may cross.
FAULT_WAIT_S = 3.0


class EnginePerformance:
    """Streams a session from the engine and ends it with the reason the engine gave."""

    def __init__(
        self,
        engine: Engine,
        session: Session,
        prompt: Prompt,
        *,
        seed: int,
        length_bounds: tuple[int, int],
        on_finished: Callable[[], None],
    ) -> None:
        """`length_bounds` are what the model takes of a prompt, in tokens.

        `on_finished` is called once the session has ended: the engine is free.
        """
        self._engine = engine
        self._session = session
        self._prompt = prompt
        self._seed = seed
        self._length_bounds = length_bounds
        self._features = Features()
        self._on_finished = on_finished
        self._fault: Fault | None = None
        self._has_fault = asyncio.Event()

    @property
    def session(self) -> str:
        """Id of the session."""
        return self._session.id

    @property
    def flags(self) -> Mapping[str, str]:
        """Flags drawn for it."""
        return self._session.flags

    def chunks(self) -> AbstractAsyncContextManager[AsyncIterator[Chunk]]:
        """The chunks in order; leaving the context frees the engine."""
        return aclosing(
            self._engine.chunks(
                self._session.id,
                first_forward_length=self._prompt.num_tokens,
                seed=self._seed,
                prompt_seed=self._prompt.seed,
                survives=True,
            )
        )

    def change_prompt(self, text: str) -> None:
        """Another prompt from the next step that is planned."""
        prompt = prompts.encoded(text, bounds=self._length_bounds)
        self._engine.steer(self._session.id, prompt=prompt)

    def take_features(
        self, *, audio: Sequence[float] | None = None, control: Sequence[float] | None = None
    ) -> None:
        """Features from the next step that is planned; the kind that is None stays as it was."""
        if audio is not None:
            self._features = replace(self._features, audio=tuple(audio))
        if control is not None:
            self._features = replace(self._features, control=tuple(control))
        self._engine.steer(self._session.id, features=self._features.packed())

    def send_began(self) -> None:
        """A write to the viewer begins."""
        self._session.send_began()

    def send_ended(self) -> None:
        """The write has returned."""
        self._session.send_ended()

    def deliver(self, chunk: Chunk) -> None:
        """The last frame of `chunk` has just been handed over."""
        parts = Parts(
            diffusion_ms=chunk.parts.diffusion_ms,
            reduce_ms=chunk.parts.reduce_ms,
            decoder_ms=chunk.parts.decoder_ms,
            encode_ms=chunk.parts.encode_ms,
        )
        self._session.deliver(num_frames=len(chunk.frames), parts=parts)

    def note_fault(self, fault: Fault) -> None:
        """The group that computed this session is gone, and the session with it if not survived."""
        self._fault = fault
        self._has_fault.set()

    async def finish(self, ending: Ending) -> SessionEnded:
        """End the session and put its last record in the spool."""
        try:
            return await self._ended(ending)
        finally:
            self._on_finished()

    async def _ended(self, ending: Ending) -> SessionEnded:
        if ending is Ending.STREAM_ENDED:
            await self._wait_for_fault()
        # A fault that was told while the viewer left is still how the session ended, unless the
        # session went on: then only a stream that ended shows that it did not.
        if self._fault and (ending is Ending.STREAM_ENDED or not self._fault.is_survived):
            reason = Reason(self._fault.kind.value)
            return self._session.end(Outcome.FAILED, reason=reason, detail=self._fault.detail)
        match ending:
            case Ending.VIEWER_LEFT:
                return self._session.end(Outcome.COMPLETED)
            case Ending.DRAINED:
                return self._session.end(Outcome.COMPLETED, reason=Reason.DRAINED)
            case Ending.STREAM_ENDED:
                return self._session.end(Outcome.FAILED, detail="the engine yields no more chunks")

    async def _wait_for_fault(self) -> None:
        try:
            async with asyncio.timeout(FAULT_WAIT_S):
                await self._has_fault.wait()
        except TimeoutError:
            return
