"""The chunks of one session on their way from the group to whoever consumes them. No torch."""

import asyncio
from dataclasses import asdict, dataclass, field
from typing import Any

from worker.engine.api import Chunk, StepParts
from worker.parallel.channel import Message
from worker.prompts import Prompt

# Four seconds of video: a session that brings each group down again must not go on for ever.
_LEAST_STEPS = 24


@dataclass(slots=True, kw_only=True)
class Stream:
    """One session of the engine, as the supervisor's process knows it."""

    number: int  # of this engine, from 1: late chunks of an earlier session are told apart by it
    name: str
    seed: int
    prompt: Prompt  # the newest that was asked for
    survives: bool  # a fault of the group, if it can
    features: bytes | None = None  # likewise
    chunks: "asyncio.Queue[Chunk | None]" = field(default_factory=asyncio.Queue)
    # For the leader, with the next credit: it plans no step without one, so that neither comes too
    # late, and a viewer that says much adds no message.
    _is_prompt_told: bool = True
    _are_features_told: bool = True
    _next_step: int = 0
    _resumed_at: int = 0

    @property
    def can_resume(self) -> bool:
        """True if there is something to go on from, and the last resumption led somewhere."""
        num_steps = self._next_step - self._resumed_at
        return self.survives and num_steps >= (_LEAST_STEPS if self._resumed_at else 1)

    def resumed(self, *, most_ahead: int) -> dict[str, Any]:
        """What the leader of a new group is told; the session goes on after the last chunk."""
        self._resumed_at = self._next_step
        # What was told may have died with the group before a chunk showed it.
        self._is_prompt_told = self._are_features_told = False
        return {
            "session": self.number,
            "seed": self.seed,
            "step": self._next_step,
            "credits": max(0, most_ahead - self.chunks.qsize()),
            **self.steering(),
        }

    def steer(self, *, prompt: Prompt | None, features: bytes | None) -> None:
        """Note what the viewer asks for; the newest counts."""
        if prompt:
            self.prompt, self._is_prompt_told = prompt, False
        if features:
            self.features, self._are_features_told = features, False

    def steering(self) -> dict[str, Any]:
        """What the leader has not been told yet, which then counts as told; as JSON values."""
        prompt = None if self._is_prompt_told else asdict(self.prompt)
        features = None if self._are_features_told else self.features
        self._is_prompt_told = self._are_features_told = True
        return {"prompt": prompt, "features": features and features.hex()}

    def deliver(self, message: Message) -> None:
        """Queue the chunk in `message`; one of an earlier session is dropped."""
        fields = message.fields
        if fields["session"] != self.number:
            return
        self._next_step = fields["step"] + 1
        parts = StepParts(
            diffusion_ms=fields["diffusion_ms"],
            reduce_ms=fields["reduce_ms"],
            decoder_ms=fields["decoder_ms"],
            encode_ms=fields["encode_ms"],
            decoder_hidden_ms=fields["decoder_hidden_ms"],
            encode_hidden_ms=fields["encode_hidden_ms"],
        )
        self.chunks.put_nowait(
            Chunk(
                session=self.name,
                step=fields["step"],
                frames=message.blobs,
                parts=parts,
                is_prompt_new=fields["is_prompt_new"],
            )
        )
