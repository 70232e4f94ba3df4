"""Another prompt in mid-session: the cache is that of a session which never had the old one."""

# ruff: noqa: N803 - shape suffixes in names; the legend is in `worker.model.transformer`

from collections import deque
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.worker.session.drive import SEED, Drive, error, worst
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.model import weights
from worker.model.transformer import Denoised, Transformer

# Window and period of production. The first reset is due before frame 49.
LONG_MODEL = replace(TINY_MODEL, window=7, reset_period=42)
EDGE_MODEL = replace(TINY_EDGE_MODEL, num_passes=2)
KEPT = LONG_MODEL.window - 1
# The worst step, well above the largest that was seen: float32 2.5e-7, FP8 3.4e-3, a shorter past
# 1.6e-2; what must be noticed was 2.9e-2.
FLOAT32 = 2e-6
FP8 = 1e-2
CONTEXT = 3e-2
NOTICED = 1e-2
NEW = {"length": 9, "prompt_seed": 99}
# Its period, a reset that is due, and the middle of a wrap; the fill too.
STEPS = [0, 1, 3, 6, 7, 10, 41, 42, 43, 48, 49, 50]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the last pass of a frame began from."""

    latent: Tensor
    added: Tensor | None


class Watched(Transformer):
    """Keeps what each pass of a step began from, so that a test need not ask the session."""

    def __init__(self, model: ModelConfig) -> None:
        super().__init__(model, weights.draw(model, rank=0, num_ranks=1), num_ranks=1)
        self.kept: deque[Kept] = deque(maxlen=model.window - 1)

    def denoised(self, *frame: Any, **conditions: Any) -> Denoised:
        made = super().denoised(*frame, **conditions)
        self.kept.append(Kept(self._last, conditions["added_ED"]))
        return made

    def _velocity(self, latent_GC: Tensor, *rest: Any) -> Tensor:
        self._last = latent_GC
        return super()._velocity(latent_GC, *rest)


class Swapped(Transformer):
    """Takes the finished latent for what the last pass saw."""

    def denoised(self, *frame: Any, **conditions: Any) -> Denoised:
        made = super().denoised(*frame, **conditions)
        return replace(made, seen_GC=made.latent_GC)


class Deaf(Transformer):
    """Forgets in a replay what a viewer's features had added to the frame."""

    def replay(self, *frame: Any, **conditions: Any) -> None:
        super().replay(*frame, **{**conditions, "added_ED": None})


def _fresh(watched: Watched, model: ModelConfig, *, num_steps: int) -> Drive:
    """A new session of the new prompt that is shown the kept frames, and goes on from there."""
    fresh = Drive(model, **NEW)  # type: ignore[arg-type] # length and seed
    with torch.inference_mode():
        for number, kept in enumerate(watched.kept):
            cursor = replace(fresh.cursor, num_frames=number, position=number)
            fresh.transformer.replay(
                kept.latent,
                fresh.session._cache,
                cursor,
                added_ED=kept.added,
                reduce=fresh.reduce,
            )
    num_kept = len(watched.kept)
    fresh.cursor = replace(fresh.cursor, num_frames=num_kept, position=num_kept)
    fresh.num_steps = num_steps  # the noise of a step is that of the session's step
    return fresh


@pytest.mark.parametrize(
    ("at", "position_reset"),
    [*((at, "delta_window") for at in STEPS), (49, "delta_sinks"), (50, "delta_sinks")],
)
def test_the_latents_are_those_of_a_session_of_the_new_prompt(at: int, position_reset: str) -> None:
    """Whatever was turned before, and whether or not a reset was due."""
    watched = Watched(LONG_MODEL)
    drive = Drive(LONG_MODEL, {"position_reset": position_reset}, transformer=watched)
    drive.run(at)
    drive.change_prompt(**NEW)
    fresh = _fresh(watched, LONG_MODEL, num_steps=at)
    assert drive.session.contents().base == 0
    assert worst(drive.run(KEPT + 3), fresh.run(KEPT + 3)) < FLOAT32


def test_a_reset_comes_in_time_after_the_change() -> None:
    """Positions begin at 0 again, and so does the way to the next reset."""
    watched = Watched(EDGE_MODEL)
    drive = Drive(EDGE_MODEL, transformer=watched)
    drive.run(4)
    drive.change_prompt(**NEW)
    fresh = _fresh(watched, EDGE_MODEL, num_steps=4)
    found, expected = drive.run(12), fresh.run(12)
    assert worst(found, expected) < FLOAT32
    assert drive.session.contents().base == 9  # three resets by 3


@pytest.mark.parametrize("kv_cache", ["recompute", "write_time_fp8"])
@pytest.mark.parametrize("at", [3, 10, 42])
def test_every_format_can_be_rebuilt(kv_cache: str, at: int) -> None:
    watched = Watched(LONG_MODEL)
    drive = Drive(LONG_MODEL, {"kv_cache": kv_cache}, transformer=watched)
    drive.run(at)
    # What the session has seen is its own: in FP8 it is not what another would have seen.
    drive.change_prompt(**NEW)
    fresh = _fresh(watched, LONG_MODEL, num_steps=at)
    bound = FP8 if kv_cache == "write_time_fp8" else FLOAT32
    assert worst(drive.run(KEPT + 3), fresh.run(KEPT + 3)) < bound


@pytest.mark.parametrize("at", [1, 10, 42])
def test_several_changes_in_a_row_are_the_last_alone(at: int) -> None:
    """Nothing of a prompt that no frame was made with stays."""
    once, often = (Drive(LONG_MODEL) for _ in range(2))
    once.run(at)
    often.run(at)
    for length, prompt_seed in ((48, 3), (1, 4), (30, 5)):
        often.change_prompt(length=length, prompt_seed=prompt_seed)
    for drive in (once, often):
        drive.change_prompt(**NEW)
    assert worst(often.run(3), once.run(3)) == 0


@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "recompute", "write_time_fp8"])
@pytest.mark.parametrize("at", [0, 3, 10])
def test_no_slot_is_zero_after_a_change(kv_cache: str, at: int) -> None:
    """Every key is normed, so a key of no length was never written."""
    drive = Drive(LONG_MODEL, {"kv_cache": kv_cache})
    drive.run(at)
    drive.change_prompt(**NEW)
    held = drive.session.contents()
    assert held.prefix.k_BHTD.shape[2] == NEW["length"]
    assert len(held.frames) == min(at, KEPT)
    for tokens in (held.prefix, *held.frames):
        lengths = tokens.k_BHTD.norm(dim=-1) / LONG_MODEL.head_width**0.5
        assert (lengths - 1).abs().max().item() < 0.1
        assert tokens.v_BHTD.norm(dim=-1).min().item() > 0


@pytest.mark.parametrize("at", [10, 42])
def test_the_same_prompt_again_is_close_to_no_change_at_the_newest_frames(at: int) -> None:
    """The oldest lost its past; the newest has nearly all of it. The first block has none."""
    drive, unchanged = Drive(LONG_MODEL), Drive(LONG_MODEL)
    drive.run(at)
    unchanged.run(at)
    before = drive.session.contents()
    drive.change_prompt(length=5, prompt_seed=SEED)
    after = drive.session.contents()
    errors = [
        error(ours.k_BHTD[1], theirs.k_BHTD[1])
        for ours, theirs in zip(after.frames, before.frames[-KEPT:], strict=True)
    ]
    assert error(after.frames[0].k_BHTD[0], before.frames[-KEPT].k_BHTD[0]) < FLOAT32
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.05 < errors[0]
    assert error(after.prefix.k_BHTD, before.prefix.k_BHTD) == 0
    assert error(drive.step(), unchanged.step()) < CONTEXT


@pytest.mark.parametrize("at", [3, 10, 42])
@pytest.mark.parametrize("kind", [Swapped, Deaf])
def test_a_replay_of_anything_else_would_be_noticed(kind: type[Transformer], at: int) -> None:
    """The negative controls: keys come from what the last pass saw, which is no finished latent."""
    watched = Watched(LONG_MODEL)
    right = Drive(LONG_MODEL, transformer=watched)
    held = weights.draw(LONG_MODEL, rank=0, num_ranks=1)
    wrong = Drive(LONG_MODEL, transformer=kind(LONG_MODEL, held, num_ranks=1))
    for drive in (right, wrong):
        drive.run(at)
        drive.change_prompt(**NEW)
    fresh = _fresh(watched, LONG_MODEL, num_steps=at)
    expected = fresh.step()
    assert error(right.step(), expected) < FLOAT32
    assert error(wrong.step(), expected) > NOTICED
