"""Parts of a process window that tell how steps went and what the GPUs did; all of it optional.

What a worker cannot know is left out: it is never a zero, and a zero is always a measurement.
"""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from controlplane.contract import vocabulary
from controlplane.contract.messages import Count, Name, Real, Whole

Milliseconds = Annotated[Real, Field(ge=0, le=1e12, allow_inf_nan=False)]
Index = Annotated[Whole, Field(ge=0, le=65_535)]
MAX_GPUS = 64


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class StepTimes(_Part):
    """How long the steps of an incarnation's sessions took, cumulative; never falls.

    Of every chunk that was delivered with its times, but the first of each session: that one
    contains the first forward. A step takes its diffusion and the exposed part of decoder and
    encoder; what ran beside the diffusion of another chunk costs no step anything.
    """

    num_steps: Count
    # Steps that took at most each of `vocabulary.STEP_BOUNDS_MS`, in that order.
    num_at_most: Annotated[
        list[Count],
        Field(min_length=len(vocabulary.STEP_BOUNDS_MS), max_length=len(vocabulary.STEP_BOUNDS_MS)),
    ]
    diffusion_ms: Milliseconds  # sums over those steps, as the three below
    reduce_ms: Milliseconds  # the part of `diffusion_ms` in output products and their sums
    decoder_ms: Milliseconds  # exposed
    encode_ms: Milliseconds  # exposed

    @model_validator(mode="after")
    def _counts_rise(self) -> Self:
        counts = [*self.num_at_most, self.num_steps]
        if counts != sorted(counts):
            message = (
                f"num_at_most: counts of ever longer steps never fall, and num_steps is above all"
                f" of them, got {self.num_at_most} of {self.num_steps}"
            )
            raise ValueError(message)
        return self

    @property
    def num_late(self) -> int:
        """Steps that took longer than the deadline."""
        deadline = vocabulary.STEP_BOUNDS_MS.index(vocabulary.STEP_DEADLINE_MS)
        return self.num_steps - self.num_at_most[deadline]


class HeadClamps(_Part):
    """What was clamped in one head of one block."""

    block: Index
    head: Index  # of the whole model, however many ranks share it
    num_keys: Count  # numbers, not tokens
    num_values: Count


class Clamps(_Part):
    """Numbers that did not fit FP8 and were clamped, since the ranks began to watch them.

    They begin anew with each group of ranks, and when the flag `fp8_monitor` changes.
    """

    num_keys: Count
    num_values: Count
    # Those with most, the worst first; a head without any is not named.
    worst: Annotated[list[HeadClamps], Field(max_length=vocabulary.MAX_WORST_HEADS)] = []

    @model_validator(mode="after")
    def _heads_are_part_of_the_whole(self) -> Self:
        heads = {(one.block, one.head) for one in self.worst}
        if len(heads) != len(self.worst):
            message = "worst: a head is named twice"
            raise ValueError(message)
        named = (sum(h.num_keys for h in self.worst), sum(h.num_values for h in self.worst))
        if named[0] > self.num_keys or named[1] > self.num_values:
            message = f"worst: more than all, {named} of {(self.num_keys, self.num_values)}"
            raise ValueError(message)
        return self


class GpuReading(_Part):
    """One GPU at one moment; a field that its driver does not tell is left out."""

    index: Index  # as NVML counts
    power_w: Annotated[Real, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    sm_clock_mhz: Annotated[Real, Field(ge=0, le=1e6, allow_inf_nan=False)] | None = None
    memory_used_bytes: Count | None = None
    # Why its clocks are held down; empty: by nothing. A GPU without work says `gpu_idle`.
    throttle_reasons: Annotated[list[Name], Field(max_length=64)] | None = None
