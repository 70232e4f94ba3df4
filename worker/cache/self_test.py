"""Whether a format of the cache works here: a short life of it against the oracle, at start-up.

A machine whose library rounds, scatters or attends in another way than this one was built with is
found before a viewer sees it.
"""

# ruff: noqa: N806 - shape suffixes in names; the legend is in `worker.cache.variants`

from dataclasses import replace

import torch
from torch import Tensor

from worker.cache import reset, variants
from worker.cache.contents import Contents, KeyValueCache, Tokens
from worker.cache.recompute import RecomputeCache
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor, advanced
from worker.cache.variants import KvCache
from worker.config import ModelConfig
from worker.ops import norm
from worker.ops.pre_attention import Heads, PreAttention

_NUM_HEADS = 2
_RESETS = (PositionReset.DELTA_WINDOW, PositionReset.DELTA_SINKS)
# Of the root mean square, by the element of the cache: bfloat16 has 8 bits, e4m3 four; keys that
# were turned once more are rounded once more. Seen were 5e-7, 0.0044 and 0.051; a prefix that was
# left behind by a reset was 0.12 off.
_BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 0.03}
_FP8_BOUND = 0.08


class SelfTestError(Exception):
    """A format does not give what the oracle gives."""


def check(model: ModelConfig, variant: KvCache, *, pre_attention: PreAttention) -> None:
    """Fill, wrap and reset a cache of one block, each way once, with numbers of a fixed seed.

    Raises: SelfTestError naming the format, the step, and by how much it is off.
    """
    small = replace(model, num_blocks=1)
    generator = torch.Generator().manual_seed(model.seed)
    # The longest, so that a reset that forgets the prefix is no small error.
    prefix = _tokens(small, small.first_forward_bounds[1], generator)
    dtype: torch.dtype = getattr(torch, model.cache_dtype)
    oracle = RecomputeCache(small, num_heads=_NUM_HEADS, dtype=torch.float32)
    cache = _filled(small, variant, prefix, pre_attention=pre_attention)
    oracle.load(Contents(prefix=prefix, frames=(), num_frames=0, base=0))
    cursor = RingCursor(window=small.window, reset_period=small.window + 1)
    bound = _FP8_BOUND if variant is KvCache.WRITE_TIME_FP8 else _BOUNDS[dtype]
    resets = iter(_RESETS)
    # The last step is the first after the last reset.
    for step in range(small.window + len(_RESETS) * cursor.reset_period + 1):
        if cursor.shift:
            way = next(resets)
            for held in (oracle, cache):
                reset.apply(way, held, cursor)
        heads = _heads(small, generator)
        expected_HTD, found_HTD = (_stepped(held, cursor, heads) for held in (oracle, cache))
        error = ((found_HTD - expected_HTD).norm() / expected_HTD.norm()).item()
        if not error <= bound:  # a NaN is no small error
            message = f"{variant.value} is off by {error:.3g} in step {step}; allowed: {bound:g}"
            raise SelfTestError(message)
        cursor = advanced(cursor)


def _filled(
    model: ModelConfig,
    variant: KvCache,
    prefix: Tokens,
    *,
    pre_attention: PreAttention,
) -> KeyValueCache:
    begun = RecomputeCache(model, num_heads=_NUM_HEADS, dtype=torch.float32)
    begun.load(Contents(prefix=prefix, frames=(), num_frames=0, base=0))
    return variants.flipped(begun, variant, model, pre_attention=pre_attention)[0]


def _stepped(cache: KeyValueCache, cursor: RingCursor, heads: Heads) -> Tensor:
    cache.open_frame(cursor)
    return cache.attend(0, cache.prepare(0, heads)).float()


def _heads(model: ModelConfig, generator: torch.Generator) -> Heads:
    shape = (3, _NUM_HEADS, model.tokens_per_frame, model.head_width)
    q_HTD, k_HTD, v_HTD = torch.randn(shape, generator=generator)
    return Heads(q_HTD=q_HTD, k_HTD=k_HTD, v_HTD=v_HTD)


def _tokens(model: ModelConfig, length: int, generator: torch.Generator) -> Tokens:
    shape = (2, 1, _NUM_HEADS, length, model.head_width)
    k_BHTD, v_BHTD = torch.randn(shape, generator=generator)
    return Tokens(k_BHTD=norm.rms_norm(k_BHTD), v_BHTD=v_BHTD)
