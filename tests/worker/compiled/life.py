"""Sessions of a whole model, run in any way, through fill, wrap, reset and flip."""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.model.transformer`

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from tests.worker.ranks import Sum, ThreadSum
from worker import flags as flag_registry
from worker.cache.ring import RingCursor, advanced
from worker.config import TINY_EDGE_MODEL, ModelConfig
from worker.engine.session import Chosen, SessionCompute
from worker.model import weights
from worker.model.execution import EAGER, Execution
from worker.model.transformer import Reduce, Transformer

MODEL = TINY_EDGE_MODEL  # window 2, reset 3
# Before this frame the positions are set back, and then every `reset_period` frames.
FIRST_RESET = MODEL.window + MODEL.reset_period


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What happens to a session."""

    num_steps: int
    flags: Mapping[str, str] = field(default_factory=dict)
    flips: Mapping[int, Mapping[str, str]] = field(default_factory=dict)  # before a step
    length: int = 5


def latents(
    course: Course,
    execution: Execution = EAGER,
    *,
    rank: int = 0,
    num_ranks: int = 1,
    reduce: Reduce | None = None,
    model: ModelConfig = MODEL,
) -> list[Tensor]:
    """The latent of each step, as one rank computes it."""
    reduce = reduce or Sum()
    flags = flag_registry.fallback() | dict(course.flags)
    generator = torch.Generator().manual_seed(5)
    with torch.inference_mode():
        held = weights.draw(model, rank=rank, num_ranks=num_ranks)
        transformer = Transformer(model, held, num_ranks=num_ranks, execution=execution)
        prompt_LD = torch.randn((course.length, model.width), generator=generator)
        session = SessionCompute(
            transformer, model, Chosen.of(flags), prompt_LD=prompt_LD, reduce=reduce
        )
        cursor = RingCursor(window=model.window, reset_period=model.reset_period)
        made = []
        for step in range(course.num_steps):
            if step in course.flips:
                flags |= course.flips[step]
                session.take(Chosen.of(flags))
            shape = (model.grid[0] * model.grid[1], model.latent_channels)
            noise_GC = torch.randn(shape, generator=generator)
            made.append(session.step(noise_GC, cursor, reduce=reduce).latent_GC)
            cursor = advanced(cursor)
    return made


def split_latents(course: Course, executions: Sequence[Execution]) -> list[list[Tensor]]:
    """The same on ranks that are threads of this process, each with an execution of its own."""
    num_ranks = len(executions)
    total = ThreadSum(num_ranks)
    results: dict[int, list[Tensor]] = {}

    def run(rank: int) -> None:
        results[rank] = latents(
            course, executions[rank], rank=rank, num_ranks=num_ranks, reduce=Sum(rank, total)
        )

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(num_ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [results[rank] for rank in range(num_ranks)]


def worst(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest error of a step, of the size of its latent; a NaN is no small error."""
    assert len(found) == len(expected) > 0
    errors = [
        ((one - other).norm() / other.norm()).item()
        for one, other in zip(found, expected, strict=True)
    ]
    return max(float("inf") if error != error else error for error in errors)  # noqa: PLR0124 - NaN
