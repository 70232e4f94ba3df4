"""What a prompt does to the cache: the first forward, and a change of prompt in mid-session.

Pure integers, decided by rank 0 like the ring itself; must not import torch.
"""

from dataclasses import dataclass

from worker import shapes
from worker.cache.ring import RingCursor
from worker.config import ConfigError, ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstForward:
    """The one forward of a session whose length depends on the prompt."""

    num_tokens: int
    num_rows: int  # padded; what a kernel or a graph may be keyed by
    first_slot: int  # the prefix is right-aligned in front of the ring
    end_slot: int  # where the ring begins
    flops: int  # all ranks; at time 0 a prompt sees itself and nothing else


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """One kept frame that is computed again from its clean latent."""

    frame: int  # counted from the start of the session or from the last change of prompt
    slot: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptChange:
    """What makes the cache one of the new prompt; carried out in order, in an empty cache."""

    first_forward: FirstForward
    replays: tuple[Replay, ...]
    cursor: RingCursor  # for the next frame


def first_forward(model: ModelConfig, *, length: int) -> FirstForward:
    """The first forward of a prompt of `length` tokens.

    Raises: ConfigError for a length out of bounds.
    """
    low, high = model.first_forward_bounds
    if not low <= length <= high:
        raise ConfigError("prompt_length", length, f"{low} to {high} tokens")
    return FirstForward(
        num_tokens=length,
        num_rows=shapes.padded_rows(length),
        first_slot=high - length,
        end_slot=high,
        flops=shapes.forward_flops(model, num_tokens=length, num_slots=length),
    )


def num_shapes(model: ModelConfig) -> int:
    """Row counts that all prompts and all frames bring: the most that anything keeps one for."""
    low, high = model.first_forward_bounds
    lengths = {*range(low, high + 1), model.tokens_per_frame}
    return len({shapes.padded_rows(length) for length in lengths})


def changed(model: ModelConfig, cursor: RingCursor, *, length: int) -> PromptChange:
    """The change to a prompt of `length` tokens before the frame that `cursor` names.

    Keys of the old prompt are in every kept frame, so all of them are computed again, oldest
    first: each then sees the new prompt and the frames before it. The next frame overwrites the
    oldest of a full window, so one frame less is kept. Positions start at 0 again, which is a reset
    by the way: a reset that was due is done, and its shift must not be applied any more.

    Raises: ConfigError for a length out of bounds.
    """
    num_kept = min(cursor.num_frames, cursor.window - 1)
    oldest = cursor.num_frames - num_kept
    return PromptChange(
        first_forward=first_forward(model, length=length),
        replays=tuple(
            Replay(frame=oldest + number, slot=number, position=number)
            for number in range(num_kept)
        ),
        cursor=RingCursor(
            window=cursor.window,
            reset_period=cursor.reset_period,
            num_frames=num_kept,
            position=num_kept,
        ),
    )
