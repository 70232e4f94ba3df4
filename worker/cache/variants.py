"""The variants of `kv_cache` by name, and the way from one to another within a session.

A flip happens between two steps: what the old format holds is told raw and stored in the new one.
Both are in memory for that moment.
"""

from enum import StrEnum
from typing import assert_never

import torch

from worker.cache.contents import KeyValueCache
from worker.cache.recompute import RecomputeCache
from worker.cache.scales import DEFAULT_HEADROOM, CacheScales, calibrated
from worker.cache.write_time import WriteTimeCache
from worker.config import ModelConfig
from worker.ops.pre_attention import PreAttention, unfused


class KvCache(StrEnum):
    """The variants of `kv_cache`."""

    RECOMPUTE = "recompute"
    WRITE_TIME_BF16 = "write_time_bf16"
    WRITE_TIME_FP8 = "write_time_fp8"


class MissingScalesError(ValueError):
    """FP8 was asked for before anything was there to set its scales."""


def new(
    variant: KvCache,
    model: ModelConfig,
    *,
    num_heads: int,
    scales: CacheScales | None = None,
    pre_attention: PreAttention = unfused,
) -> KeyValueCache:
    """An empty cache; what is not FP8 is in the `cache_dtype` of the model.

    That is bfloat16 in production; the presets for the CPU have float32, to be compared closely.

    Raises: MissingScalesError: `write_time_fp8` without scales. A session begins in another
        variant, and flips once its prefix and first window are there to calibrate on.
    """
    dtype: torch.dtype = getattr(torch, model.cache_dtype)
    match variant:
        case KvCache.RECOMPUTE:
            return RecomputeCache(model, num_heads=num_heads, dtype=dtype)
        case KvCache.WRITE_TIME_BF16:
            return WriteTimeCache(
                model, num_heads=num_heads, dtype=dtype, pre_attention=pre_attention
            )
        case KvCache.WRITE_TIME_FP8:
            if scales is None:
                message = "write_time_fp8 needs scales; calibrate on a cache of another variant"
                raise MissingScalesError(message)
            return WriteTimeCache(
                model,
                num_heads=num_heads,
                dtype=dtype,
                scales=scales,
                pre_attention=pre_attention,
            )
        case _:
            assert_never(variant)


def flipped(
    cache: KeyValueCache,
    variant: KvCache,
    model: ModelConfig,
    *,
    scales: CacheScales | None = None,
    headroom: float = DEFAULT_HEADROOM,
    pre_attention: PreAttention = unfused,
) -> tuple[KeyValueCache, CacheScales | None]:
    """`cache` in the format of `variant`, and the session's scales.

    Scales are set at the first flip to FP8 and handed back in at every later one, so that a
    session has one set. Raises: CalibrationError, see `scales.calibrated`.
    """
    held = cache.contents()
    if variant is KvCache.WRITE_TIME_FP8 and scales is None:
        scales = calibrated(held, headroom=headroom)
    num_heads = held.prefix.k_BHTD.shape[1]
    fresh = new(
        variant,
        model,
        num_heads=num_heads,
        scales=scales,
        pre_attention=pre_attention,
    )
    fresh.load(held)
    return fresh, scales
