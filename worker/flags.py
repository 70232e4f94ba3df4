"""The kernel switches of this worker: their variants, their fallback, and names for a set of them.

Knows names only. What a variant does is in `worker.ops`; when it changes, in `worker.engine`.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Applies(StrEnum):
    """When a variant may change."""

    STEP = "step"
    SESSION = "session"
    RESTART = "restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One switch. The order of its variants is their number in a step plan: only append."""

    name: str
    applies: Applies
    variants: tuple[str, ...]
    plain: str  # the oracle of probes and tests
    fallback: str  # the plainest that holds the deadline on the hardware of production
    demo_variants: frozenset[str] = frozenset()

    def allowed(self, *, has_demo_variants: bool) -> tuple[str, ...]:
        """The variants that this worker may be asked for."""
        return tuple(v for v in self.variants if has_demo_variants or v not in self.demo_variants)


FUSED_ALLREDUCE = Flag(
    name="fused_allreduce",
    applies=Applies.STEP,
    variants=("nccl", "fused_steady", "fused_all", "fused_small_tiles"),
    plain="nccl",
    fallback="nccl",
    demo_variants=frozenset({"fused_small_tiles"}),
)
KV_CACHE = Flag(
    name="kv_cache",
    applies=Applies.STEP,  # what is held is converted, see `worker.cache.variants`
    variants=("write_time_bf16", "recompute", "write_time_fp8"),
    plain="recompute",
    fallback="write_time_bf16",
)
POSITION_RESET = Flag(
    name="position_reset",
    # Any way may follow any other, see `worker.cache.reset`.
    applies=Applies.STEP,
    variants=("delta_window", "rebuild", "delta_sinks"),
    plain="rebuild",
    fallback="delta_window",
)
PRE_ATTENTION = Flag(
    name="pre_attention",
    applies=Applies.STEP,
    variants=("unfused", "fused", "fused_undeclared", "fused_counting"),
    plain="unfused",
    fallback="unfused",
    # Right when run eagerly, refused at the start of a compiled worker.
    demo_variants=frozenset({"fused_undeclared", "fused_counting"}),
)
EXECUTION = Flag(
    name="execution",
    applies=Applies.RESTART,  # a rank compiles, and proves, at its start only
    variants=("eager", "compiled", "graphs"),
    plain="eager",
    fallback="eager",
)
DECODER = Flag(
    name="decoder",
    # Who is there to decode is settled when the processes are forked.
    applies=Applies.RESTART,
    variants=("dedicated", "shared"),
    plain="shared",
    fallback="dedicated",
)
# In the order of a step plan: only append.
_FLAGS = (FUSED_ALLREDUCE, KV_CACHE, POSITION_RESET, PRE_ATTENTION, DECODER, EXECUTION)
REGISTRY: Mapping[str, Flag] = MappingProxyType({flag.name: flag for flag in _FLAGS})
WORD_BYTES = 8  # one byte a flag: room for as many flags without a new plan format
assert len(REGISTRY) <= WORD_BYTES, "a step plan has no room for so many flags"


class FlagError(ValueError):
    """A set of flags that cannot be taken; the message names flag and variant."""


class UnknownFlagError(FlagError):
    """A flag or a variant that this worker does not have; the message says which it has."""


class RestartNeededError(FlagError):
    """A variant that only a new group of processes can bring."""


def fallback() -> dict[str, str]:
    """Every flag at its fallback."""
    return {flag.name: flag.fallback for flag in REGISTRY.values()}


def plain() -> dict[str, str]:
    """Every flag at its oracle: right, and too slow to serve anyone."""
    return {flag.name: flag.plain for flag in REGISTRY.values()}


def resolved(flags: Mapping[str, str], *, has_demo_variants: bool) -> dict[str, str]:
    """The full set that `flags` asks for; what it leaves out is at its fallback.

    Raises: UnknownFlagError naming the flag, the variant and what is allowed.
    """
    for name, variant in flags.items():
        if name not in REGISTRY:
            message = f"unknown flag {name!r} (variant {variant!r}); allowed: {', '.join(REGISTRY)}"
            raise UnknownFlagError(message)
        allowed = REGISTRY[name].allowed(has_demo_variants=has_demo_variants)
        if variant not in allowed:
            message = f"flag {name!r} has no variant {variant!r}; allowed: {', '.join(allowed)}"
            raise UnknownFlagError(message)
    return fallback() | dict(flags)


def need_restart(flags: Mapping[str, str], *, running: Mapping[str, str]) -> tuple[str, ...]:
    """The flags in which these sets differ and that only a new group of processes can change."""
    both = (fallback() | dict(flags), fallback() | dict(running))
    return tuple(
        flag.name
        for flag in REGISTRY.values()
        if flag.applies is Applies.RESTART and len({each[flag.name] for each in both}) > 1
    )


def check_live(flags: Mapping[str, str], *, running: Mapping[str, str]) -> None:
    """Raises: RestartNeededError if a group that runs `running` cannot take `flags`."""
    now, then = fallback() | dict(running), fallback() | dict(flags)
    sentences = (
        f"flag {name!r} applies at a restart: {now[name]!r} stays, {then[name]!r} was asked for"
        for name in need_restart(flags, running=running)
    )
    if message := "; ".join(sentences):
        raise RestartNeededError(message)


def until_restart(flags: Mapping[str, str], *, running: Mapping[str, str]) -> dict[str, str]:
    """What of `flags` a group can take that runs `running`; the rest stays as it is."""
    full = fallback() | dict(running)
    return {**flags, **{name: full[name] for name in need_restart(flags, running=running)}}


def digest(flags: Mapping[str, str]) -> str:
    """A short name for a set of flags; equal sets have equal digests."""
    text = "\n".join(f"{name}={variant}" for name, variant in sorted(flags.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def word(flags: Mapping[str, str]) -> bytes:
    """A full set of flags as the bytes of a step plan: the number of each variant in order."""
    numbers = bytes(flag.variants.index(flags[flag.name]) for flag in REGISTRY.values())
    return numbers.ljust(WORD_BYTES, b"\0")


def from_word(packed: bytes) -> dict[str, str]:
    """The inverse of `word`. Raises: IndexError for a number that no variant has."""
    return {
        flag.name: flag.variants[number]
        for flag, number in zip(REGISTRY.values(), packed, strict=False)
    }
