"""One session driven through fill, wraps and resets, with each attention held to the reference."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tests.worker.cache.reference import Reference, normed, relative_error
from worker.cache import contents as contents_
from worker.cache import reset
from worker.cache.contents import Contents, KeyValueCache, Tokens
from worker.cache.reset import PositionReset
from worker.cache.ring import RingCursor, advanced
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.ops.pre_attention import Heads

# 7 tokens a frame, a prefix of 1 to 11: no length is a multiple of another, or of anything else.
ODD_MODEL = replace(
    TINY_EDGE_MODEL,
    window=3,
    reset_period=4,
    grid=(3, 2),
    rope_split=(6, 4, 6),
    first_forward_bounds=(1, 11),
)
# The head of production: 128 channels, 44 turned by time; its window and its period.
WIDE_MODEL = replace(
    TINY_MODEL,
    num_blocks=1,
    width=384,
    num_heads=3,
    grid=(2, 2),
    window=7,
    reset_period=42,
    rope_split=(44, 42, 42),
    first_forward_bounds=(1, 13),
)
NUM_HEADS = 3
NUM_PASSES = 2  # only the last may be seen by the next frame


def steps_of(model: ModelConfig) -> int:
    """Two resets and a window more."""
    return 2 * model.reset_period + 2 * model.window + 1


@dataclass(slots=True)
class Session:
    """A cache, the reference of each of its blocks, and the errors seen."""

    model: ModelConfig
    cache: KeyValueCache
    prefix_length: int
    dtype: torch.dtype = torch.bfloat16
    reset_by: PositionReset = PositionReset.DELTA_WINDOW
    # Fresh numbers in every run; pytest-randomly prints the seed that brings them back.
    seed: int = field(default_factory=lambda: random.getrandbits(63))
    cursor: RingCursor | None = None  # to begin elsewhere than at the first frame
    errors: list[float] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    at: RingCursor = field(init=False)
    offset: int = field(init=False)  # frames that the reference has never seen
    generator: torch.Generator = field(init=False)
    turn: Callable[[], None] | None = None  # in place of a reset

    def __post_init__(self) -> None:
        period = self.model.reset_period
        self.at = self.cursor or RingCursor(window=self.model.window, reset_period=period)
        self.offset = self.at.num_frames
        self.generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.model.num_blocks):
            keys = normed(self.noise(self.prefix_length)).to(self.dtype)
            self.references.append(Reference(self.model, (keys, self.noise(self.prefix_length))))
        self.cache.load(self.clean())

    def noise(self, tokens: int) -> Tensor:
        """Fresh numbers; each head of another size, so that a swapped head shows."""
        shape = (NUM_HEADS, tokens, self.model.head_width)
        sizes = torch.tensor([0.5, 1.0, 3.0])[:, None, None]
        return (torch.randn(shape, generator=self.generator) * sizes).to(self.dtype)

    def clean(self) -> Contents:
        """Prefix and window as a rebuild from the clean latents would give them."""
        num_seen = self.at.num_frames - self.offset
        first = max(0, num_seen - self.model.window)
        return Contents(
            prefix=self._tokens([reference.prefix for reference in self.references]),
            frames=tuple(
                self._tokens(
                    [
                        (normed(k).to(self.dtype), v)
                        for k, v in (reference.frames[number] for reference in self.references)
                    ]
                )
                for number in range(first, num_seen)
            ),
            num_frames=self.at.num_frames,
            base=contents_.base_of(self.at),
        )

    def step(self) -> None:
        """One frame: reset if due, then every pass of every block against the reference."""
        if self.at.shift:
            self._reset()
        self.cache.open_frame(self.at)
        for number in range(NUM_PASSES):
            for block, reference in enumerate(self.references):
                heads = Heads(
                    q_HTD=self.noise(self.model.tokens_per_frame),
                    k_HTD=self.noise(self.model.tokens_per_frame),
                    v_HTD=self.noise(self.model.tokens_per_frame),
                )
                if number:
                    reference.frames.pop()
                reference.frames.append((heads.k_HTD, heads.v_HTD))
                query = self.cache.prepare(block, heads)
                out = self.cache.attend(block, query)
                base = contents_.base_of(self.at) - self.offset
                expected = reference.attended(heads.q_HTD, base=base)
                self.errors.extend(map(relative_error, out, expected))  # of each head
        self.at = advanced(self.at)

    def run(self, num_steps: int) -> "Session":
        for _ in range(num_steps):
            self.step()
        return self

    @property
    def pooled(self) -> float:
        """Root mean square of all errors."""
        return math.sqrt(sum(error * error for error in self.errors) / len(self.errors))

    @property
    def worst(self) -> float:
        """The largest error of any head in any attention; a NaN is infinitely large."""
        assert self.errors
        return max(math.inf if math.isnan(error) else error for error in self.errors)

    def _reset(self) -> None:
        if self.turn is not None:
            self.turn()
            return
        reset.apply(self.reset_by, self.cache, self.at, clean=self.clean())

    def _tokens(self, parts: list[tuple[Tensor, Tensor]]) -> Tokens:
        return Tokens(
            k_BHTD=torch.stack([keys for keys, _ in parts]).float(),
            v_BHTD=torch.stack([values for _, values in parts]).float(),
        )
