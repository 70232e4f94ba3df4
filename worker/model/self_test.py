"""Whether a compiled forward does what the eager one does: a short life of both, at start-up.

One forward is not enough: a write that the compiler has dropped is missed by the next read, and a
graph that fits only one call fails the second. So: fill, wrap and reset, with no new graph.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.model.transformer`

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from worker.cache import reset, variants
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor, advanced
from worker.cache.variants import KvCache
from worker.config import ModelConfig
from worker.model.execution import EAGER, Execution
from worker.model.transformer import OwnPart, Transformer
from worker.model.weights import Weights
from worker.ops.pre_attention import PreAttention

_PREFIX = 3
_RESETS = (PositionReset.DELTA_WINDOW, PositionReset.DELTA_SINKS)
# Of the root mean square of a latent, by what the cache holds. A compiler may round once where
# eager rounds twice: nothing in float32, a unit of bfloat16 or e4m3 now and then.
_BOUNDS = {"float32": 1e-4, "bfloat16": 0.03}
_FP8_BOUND = 0.03
# `entered`, `left` and what comes before attention.
_MOST_GRAPHS = 3


class SelfTestError(Exception):
    """The compiled forward does not do what the eager one does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is compiled, and with what."""

    model: ModelConfig
    weights: Weights
    num_ranks: int
    execution: Execution

    def with_one_block(self) -> "Subject":
        """The same graphs, for a small part of the time."""
        return replace(
            self,
            model=replace(self.model, num_blocks=1),
            weights=replace(self.weights, blocks=self.weights.blocks[:1]),
        )


def check(subject: Subject, kv_cache: KvCache, *, pre_attention: PreAttention, name: str) -> None:
    """Compare both, step by step. `name` is that of `pre_attention`, for the message.

    Raises: SelfTestError saying what was compiled, the step, and by how much it is off or how many
    graphs it made; what torch raises if it cannot compile.
    """
    small = subject.with_one_block()
    what = f"compiled {name} with {kv_cache.value}"
    bound = _FP8_BOUND if kv_cache is KvCache.WRITE_TIME_FP8 else _BOUNDS[small.model.cache_dtype]
    execution = small.execution
    num_before = execution.num_graphs
    form = execution.form(pre_attention) if name != "unfused" else pre_attention
    plain = _life(replace(small, execution=EAGER), kv_cache, pre_attention)
    compiled = _life(small, kv_cache, form)
    num_after_first = 0
    for step, (expected_GC, found_GC) in enumerate(zip(plain, compiled, strict=True)):
        error = ((found_GC - expected_GC).norm() / expected_GC.norm()).item()
        if not error <= bound:  # a NaN is no small error
            message = f"{what} is off by {error:.3g} in step {step}; allowed: {bound:g}"
            raise SelfTestError(message)
        num_graphs = execution.num_graphs - num_before
        num_after_first = num_after_first or num_graphs
        if num_graphs > min(_MOST_GRAPHS, num_after_first):
            message = (
                f"{what} needed {num_graphs} graphs by step {step}; allowed: {_MOST_GRAPHS}, "
                "all of them in step 0"
            )
            raise SelfTestError(message)


def _life(subject: Subject, kv_cache: KvCache, pre_attention: PreAttention) -> Iterator[Tensor]:
    """The latents of a session with numbers of a fixed seed."""
    model = subject.model
    generator = torch.Generator().manual_seed(model.seed)
    transformer = Transformer(
        model, subject.weights, num_ranks=subject.num_ranks, execution=subject.execution
    )
    begun = variants.new(KvCache.WRITE_TIME_BF16, model, num_heads=transformer.num_heads)
    length = min(_PREFIX, model.first_forward_bounds[1])
    prompt_LD = torch.randn((length, model.width), generator=generator)
    transformer.first_forward(prompt_LD, begun, reduce=OwnPart())
    cache, _ = variants.flipped(begun, kv_cache, model, pre_attention=pre_attention)
    cursor = RingCursor(window=model.window, reset_period=model.window + 1)
    for step in range(model.window + 3):
        if cursor.shift:
            reset.apply(_RESETS[step % 2], cache, cursor)
        noise_GC = torch.randn(
            (model.grid[0] * model.grid[1], model.latent_channels), generator=generator
        )
        yield transformer.denoised(noise_GC, cache, cursor, reduce=OwnPart()).latent_GC
        cursor = advanced(cursor)
