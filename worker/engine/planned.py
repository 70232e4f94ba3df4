"""The session as rank 0 plans it, which is one step ahead of what is computed.

Pure: credits, a prompt and features come in, the session's part of each plan goes out.
"""

from dataclasses import dataclass, replace
from typing import Self

from worker import features
from worker.cache import prompt as prompt_cache
from worker.cache import ring
from worker.cache.ring import RingCursor
from worker.config import ModelConfig
from worker.parallel.plan import Action, StepPlan
from worker.prompts import Prompt


@dataclass(slots=True, kw_only=True)
class PlannedSession:
    """What the next step of one session is."""

    model: ModelConfig
    number: int  # of the session in this launch
    seed: int
    prompt: Prompt
    credits: int  # steps that the consumer has room for
    cursor: RingCursor
    step: int = 0  # a change of prompt begins the cursor anew, never this
    features: bytes = features.NONE
    next_prompt: Prompt | None = None
    next_action: Action = Action.START

    @classmethod
    def begun(
        cls, model: ModelConfig, *, number: int, seed: int, prompt: Prompt, num_ahead: int
    ) -> Self:
        """A session before its first step; its consumer has room for `num_ahead` steps."""
        return cls(
            model=model,
            number=number,
            seed=seed,
            prompt=prompt,
            credits=num_ahead,
            cursor=RingCursor.begun(model),
        )

    @classmethod
    def resumed(  # noqa: PLR0913 - keywords only
        cls,
        model: ModelConfig,
        *,
        number: int,
        seed: int,
        prompt: Prompt,
        num_ahead: int,
        step: int,
        num_kept: int,
        wanted: Prompt | None,
        features: bytes | None,
    ) -> Self:
        """A session of a group that has died, before `step`; its last `num_kept` steps are kept.

        `prompt` is that of the newest of them; a `wanted` one may not have come to effect.
        """
        begun = cls.begun(model, number=number, seed=seed, prompt=prompt, num_ahead=num_ahead)
        begun.cursor = replace(begun.cursor, num_frames=num_kept, position=num_kept)
        begun.step, begun.next_action = step, Action.RESUME
        begun.next_prompt = wanted if wanted != prompt else None
        begun.features = features or begun.features
        return begun

    def credit(self, *, prompt: Prompt | None, features: bytes | None) -> None:
        """The consumer has room for one step more, and may steer it."""
        self.credits += 1
        self.next_prompt = prompt or self.next_prompt
        self.features = features or self.features

    def planned(self, plan: StepPlan) -> StepPlan:
        """`plan` with the next step of this session, which then counts as planned."""
        assert self.credits > 0, "the consumer has no room for a step"
        is_rebuilt = self.next_prompt is not None
        if self.next_prompt is not None:
            self.prompt, self.next_prompt = self.next_prompt, None
            length = self.prompt.num_tokens
            self.cursor = prompt_cache.changed(self.model, self.cursor, length=length).cursor
        cursor = self.cursor
        plan = replace(
            plan,
            action=self.next_action,
            session=self.number,
            session_step=self.step,
            seed=self.seed,
            prompt_seed=self.prompt.seed,
            first_forward_length=self.prompt.num_tokens,
            is_rebuilt=is_rebuilt,
            frame=cursor.num_frames,
            position=cursor.position,
            shift=cursor.shift,
            features=self.features,
        )
        self.credits -= 1
        self.step += 1
        self.next_action = Action.STEP
        self.cursor = ring.advanced(cursor)
        return plan
