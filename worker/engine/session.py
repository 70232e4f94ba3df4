"""One session on one rank: its cache, what that was computed from, and how flags act on both.

Every rank does the same at the same step; nothing here decides.
"""

# ruff: noqa: N803, N815 - shape suffixes in names; the legend is in `worker.model.transformer`

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from worker import flags as flag_registry
from worker.cache import reset, variants
from worker.cache.contents import Contents, KeyValueCache
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor
from worker.cache.scales import CacheScales, CalibrationError
from worker.cache.variants import KvCache
from worker.config import ModelConfig
from worker.engine import reports
from worker.model.transformer import Denoised, Reduce, Transformer
from worker.ops import pre_attention, pre_attention_faults
from worker.ops.pre_attention import PreAttention

PRE_ATTENTION: Mapping[str, PreAttention] = {
    "unfused": pre_attention.unfused,
    "fused": pre_attention.fused,
    "fused_undeclared": pre_attention_faults.undeclared,
    "fused_counting": pre_attention_faults.Counting(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The variants that act within a session."""

    kv_cache: KvCache
    position_reset: PositionReset
    pre_attention: PreAttention

    @property
    def name(self) -> str:
        """For a message."""
        return f"{self.kv_cache.value}, {self.position_reset.value}, {self.pre_attention.__name__}"

    @classmethod
    def of(cls, flags: Mapping[str, str]) -> Self:
        """Out of a full set of flags."""
        return cls(
            kv_cache=KvCache(flags[flag_registry.KV_CACHE.name]),
            position_reset=PositionReset(flags[flag_registry.POSITION_RESET.name]),
            pre_attention=PRE_ATTENTION[flags[flag_registry.PRE_ATTENTION.name]],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What the last pass of a kept frame saw: all that a rebuild needs."""

    latent_GC: Tensor
    added_ED: Tensor | None


class SessionCompute:
    """The cache of one session and the steps that go through it."""

    def __init__(
        self,
        transformer: Transformer,
        model: ModelConfig,
        chosen: Chosen,
        *,
        prompt_LD: Tensor,
        reduce: Reduce,
    ) -> None:
        """Run the first forward. Raises: what `reduce` raises."""
        self._transformer, self._model, self._chosen = transformer, model, chosen
        self._prompt_LD = prompt_LD
        self._scales: CacheScales | None = None
        # A full window loses its oldest frame to the next, so one less is all that a rebuild needs.
        self._seen: deque[Seen] = deque(maxlen=model.window - 1)
        self._num_frames = 0  # since the cache was begun
        self._format, self._cache = self._fresh()
        transformer.first_forward(prompt_LD, self._cache, reduce=reduce)

    @property
    def format(self) -> KvCache:
        """The format of the cache now: FP8 comes once there is a window to calibrate on."""
        return self._format

    @property
    def num_bytes(self) -> int:
        """Of the cache."""
        return self._cache.num_bytes

    def contents(self) -> Contents:
        """What attention can see now, without angles."""
        return self._cache.contents()

    def step(
        self,
        noise_GC: Tensor,
        cursor: RingCursor,
        *,
        reduce: Reduce,
        added_ED: Tensor | None = None,
    ) -> Denoised:
        """The frame of `cursor`; `added_ED` is what a viewer's features add to it.

        Raises: NotANumberError: FP8 is due and a key or value is no number; what `reduce` raises.
        """
        if cursor.shift:
            self._reset(cursor, reduce=reduce)
        made = self._transformer.denoised(
            noise_GC, self._cache, cursor, added_ED=added_ED, reduce=reduce
        )
        self._seen.append(Seen(latent_GC=made.seen_GC, added_ED=added_ED))
        self._num_frames = cursor.num_frames + 1
        self._settle()
        return made

    def take(self, chosen: Chosen) -> None:
        """Go on with `chosen`, between two steps; what is held is converted."""
        self._chosen = chosen
        self._cache.use(self._pre_attention)
        self._settle()

    def rebuild(self, prompt_LD: Tensor, *, num_kept: int, reduce: Reduce) -> None:
        """Make the cache anew for `prompt_LD` and the last `num_kept` frames, which begin at 0.

        Raises: what `reduce` raises.
        """
        self._prompt_LD = prompt_LD
        while len(self._seen) > num_kept:
            self._seen.popleft()
        assert len(self._seen) == num_kept, f"{num_kept} frames asked for, {len(self._seen)} kept"
        self._format, self._cache = self._recomputed(reduce=reduce)
        self._num_frames = num_kept

    def restore(self, seen: Sequence[Seen], *, reduce: Reduce) -> None:
        """Take over, right after the first forward, frames that another group has computed.

        `seen` begins with the oldest. Raises: what `reduce` raises.
        """
        self._seen.extend(seen)
        self._replay(self._cache, reduce=reduce)
        self._num_frames = len(self._seen)
        self._settle()

    @property
    def _pre_attention(self) -> PreAttention:
        """As the execution runs it. `unfused` is op after op, so there is nothing to compile."""
        chosen = self._chosen.pre_attention
        is_whole = chosen is not pre_attention.unfused
        return self._transformer.execution.form(chosen) if is_whole else chosen

    def _fresh(self, *, is_exact: bool = False) -> tuple[KvCache, KeyValueCache]:
        """An empty cache in the chosen format, or in that which stands in until it can be.

        `is_exact`: it is only read out again, so nothing in it is to be rounded to FP8.
        """
        wanted = self._chosen.kv_cache
        if wanted is KvCache.WRITE_TIME_FP8 and (is_exact or self._scales is None):
            wanted = KvCache.WRITE_TIME_BF16
        return wanted, variants.new(
            wanted,
            self._model,
            num_heads=self._transformer.num_heads,
            scales=self._scales,
            pre_attention=self._pre_attention,
        )

    def _recomputed(
        self, *, reduce: Reduce, is_exact: bool = False
    ) -> tuple[KvCache, KeyValueCache]:
        """The prompt and the kept frames through the model again, one after the other."""
        fresh_format, fresh = self._fresh(is_exact=is_exact)
        self._transformer.first_forward(self._prompt_LD, fresh, reduce=reduce)
        self._replay(fresh, reduce=reduce)
        return fresh_format, fresh

    def _replay(self, cache: KeyValueCache, *, reduce: Reduce) -> None:
        start = RingCursor.begun(self._model)
        for number, seen in enumerate(self._seen):
            cursor = replace(start, num_frames=number, position=number)
            self._transformer.replay(
                seen.latent_GC, cache, cursor, added_ED=seen.added_ED, reduce=reduce
            )

    def _reset(self, cursor: RingCursor, *, reduce: Reduce) -> None:
        clean: Contents | None = None
        if self._chosen.position_reset is PositionReset.REBUILD:
            held = self._recomputed(reduce=reduce, is_exact=True)[1].contents()
            clean = replace(held, num_frames=cursor.num_frames)
        reset.apply(self._chosen.position_reset, self._cache, cursor, clean=clean)

    def _settle(self) -> None:
        """Convert to the chosen format, if that is another and can be."""
        wanted = self._chosen.kv_cache
        is_early = wanted is KvCache.WRITE_TIME_FP8 and self._num_frames < self._model.window
        if wanted is self._format or (is_early and self._scales is None):
            return
        try:
            self._cache, self._scales = variants.flipped(
                self._cache,
                wanted,
                self._model,
                scales=self._scales,
                pre_attention=self._pre_attention,
            )
        except CalibrationError as error:  # before rank 0 has looked at the latent
            message = f"the cache sets no scales: {error}"
            raise reports.NotANumberError(message) from error
        self._format = wanted
