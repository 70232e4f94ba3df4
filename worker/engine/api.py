"""What the supervisor may ask of an engine, and what an engine tells it.

The seam between `worker.main` (no torch, keeps the promises to the control plane) and the processes
that compute. Nothing here knows how ranks are launched or what a flag does.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from worker.engine.clamps import ClampSample
from worker.prompts import Prompt

Flags = Mapping[str, str]  # flag name -> variant, e.g. {"fused_allreduce": "nccl"}


class FaultKind(StrEnum):
    """Why a group of ranks could not go on; the values travel in session records and trips."""

    OUT_OF_MEMORY = "out_of_memory"
    NAN = "nan"
    RANK_DISAGREEMENT = "rank_disagreement"
    RANK_DIED = "rank_died"
    RANK_HUNG = "rank_hung"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where the time of one step went, in milliseconds each.

    What ran beside the diffusion of another chunk is *hidden*: it is no part of the step's time.
    """

    diffusion_ms: float
    reduce_ms: float  # the part of diffusion_ms spent in output products and their sums
    decoder_ms: float  # exposed, as encode_ms
    encode_ms: float
    decoder_hidden_ms: float
    encode_hidden_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The frames of one step of one session, in order, ready for a viewer."""

    session: str
    step: int  # of the session, from 0
    frames: tuple[bytes, ...]  # JPEG
    parts: StepParts
    is_prompt_new: bool = False  # the first of a prompt that `steer` has brought


@dataclass(frozen=True, slots=True, kw_only=True)
class RankEffective:
    """What one rank runs, as that rank reports it."""

    rank: int
    generation: int
    digest: str  # of its flags, so that two ranks can be compared
    step: int  # engine step number at which these flags took effect
    flag_bytes: Mapping[str, int]  # bytes each flag's own code has allocated and not freed


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """Every rank runs the same flags since the same step."""

    generation: int
    flags: Flags
    ranks: tuple[RankEffective, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagsRefused:
    """A requested set of flags was not taken; what was effective before still is."""

    generation: int
    flags: Flags
    reason: str  # a sentence that names the flag, the variant and what is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The group cannot go on. It is already killed; `restart` brings up a new one."""

    kind: FaultKind
    rank: (
        int | None
    )  # the rank that raised, died or lagged; None if only the group as a whole is known
    session: str | None
    flags: Flags  # effective when it happened
    detail: str
    is_survived: bool = False  # by the session, which goes on once `restart` has returned


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySample:
    """Memory of the group at one moment, summed over its ranks."""

    resident_bytes: int
    limit_bytes: int | None  # what the ranks may allocate in all, None if unlimited
    flag_bytes: Mapping[str, int]  # retained by each flag's own code
    retained_by_length: Mapping[int, int]  # first-forward length -> bytes kept for it
    num_graphs: int = 0  # compiled so far by the rank that has most; a constant after the start
    # Since the ranks began to watch what FP8 clamps; None where one does not.
    clamps: ClampSample | None = None


Event = Effective | FlagsRefused | Fault


class Engine(Protocol):
    """One tensor-parallel group and its decoder. Driven from one asyncio loop; never blocks it."""

    async def start(self, flags: Flags, *, generation: int) -> Effective:
        """Launch ranks and decoder with `flags`, warm up, self-test the all-reduce of each variant.

        Raises: EngineStartError naming the rank and what failed.
        """
        ...

    async def stop(self) -> None:
        """End every process of the group; harmless if it has ended."""
        ...

    async def restart(self, flags: Flags, *, generation: int) -> Effective:
        """Bring up a new group in place of the last, by a fork alone; a session that can goes on.

        Raises: EngineStartError; the session is then over.
        """
        ...

    def request_flags(self, flags: Flags, *, generation: int) -> None:
        """Ask for `flags` at a step boundary; `events` answers `Effective` or `FlagsRefused`.

        A flag that applies at a restart cannot change here: refused, and `restart` is the way.
        To the fallback: one phase, the next step. From it: prepare on every rank, then commit two
        steps ahead at the earliest. A newer generation replaces one still being prepared; one that
        is not newer is ignored.
        """
        ...

    def chunks(
        self,
        session: str,
        *,
        first_forward_length: int,
        seed: int,
        prompt_seed: int | None = None,
        survives: bool = False,
    ) -> AsyncGenerator[Chunk, None]:
        """Run a session and yield its chunks in order, at most three ahead of the consumer.

        `first_forward_length` is in tokens, within the bounds of the configuration. Closing the
        iterator ends the session and frees its cache. `prompt_seed` is that of the prompt's tokens,
        `seed` if left out. Ends early, after a `Fault` in `events`, if the group dies; one that
        `survives` waits for `restart` instead and goes on with the next chunk, from the last
        latents. It ends all the same if no chunk had come yet, or too few since the last fault.

        Raises: ValueError if a session is already running or the length is out of bounds.
        """
        ...

    def steer(
        self, session: str, *, prompt: Prompt | None = None, features: bytes | None = None
    ) -> None:
        """Change the prompt, the features, or both, from the next step that is planned.

        The session goes on: its frames and steps have no gap, and the first chunk of the new prompt
        says `is_prompt_new`. Of two prompts before that step the later one counts. Features, see
        `worker.features`, hold until others come. Nothing happens if `session` does not run.

        Raises: ValueError if the prompt's length is out of bounds or the features' number is wrong.
        """
        ...

    async def memory(self) -> MemorySample:
        """Memory now, asked of the ranks without stopping a step."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """What happened, in order; one consumer."""
        ...
