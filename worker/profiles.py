"""What each flag is set to on each hardware, and the measurement that set it: one table.

A value that is right on one GPU costs time on another, so there is no default without hardware.
The *fallback* is where the system goes by itself; the *default* is what a canary is to bring there
next, or what an operator attests on a fleet that runs it already. Figures are those of the
published article unless a line says "measured".
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from worker import flags

UNMEASURED = "not measured on this hardware; stays at the fallback until a canary has passed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """One flag on one hardware."""

    variant: str
    measurement: str  # a sentence with figures and where they come from


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """All flags on one hardware."""

    hardware: str
    fallback: Mapping[str, str]
    defaults: Mapping[str, Default]


_FUSED_ON_H100 = Default(
    variant="fused_steady",
    measurement="147.4 ms a step against 159.3 ms with NCCL on 4 x H100",
)
_WRITE_KERNEL = Default(
    variant="fused",
    measurement=(
        "what comes before attention takes 11.5 us a call in one kernel against 294 us op by op, "
        "FP8, at one rank's shape on one H200 (measured)"
    ),
)
_OWN_DECODER = Default(
    variant="dedicated",
    measurement="decoding takes 114 ms; beside the diffusion it adds 1.6 ms to the step",
)
_WINDOW_RESET = Default(
    variant="delta_window",
    measurement="the step of a reset takes 263 ms, which the playback buffer absorbs",
)


def _profile(hardware: str, **changes: Default) -> Profile:
    unmeasured = {
        name: Default(variant=flag.fallback, measurement=UNMEASURED)
        for name, flag in flags.REGISTRY.items()
    }
    return Profile(
        hardware=hardware,
        fallback=MappingProxyType(flags.fallback()),
        defaults=MappingProxyType(unmeasured | changes),
    )


def _h100(hardware: str) -> Profile:
    return _profile(
        hardware,
        fused_allreduce=_FUSED_ON_H100,
        kv_cache=Default(
            variant="write_time_fp8",
            measurement="the FP8 cache saves 17.0 ms a step on H100",
        ),
        pre_attention=_WRITE_KERNEL,
        position_reset=_WINDOW_RESET,
        decoder=_OWN_DECODER,
    )


_B200 = _profile(
    "b200x3",
    kv_cache=Default(
        variant="write_time_bf16",
        measurement=(
            "the FP8 cache costs 2.4 to 6.7 ms a step on B200: "
            "no FP8 attention kernel there takes one scale a head"
        ),
    ),
    position_reset=_WINDOW_RESET,
)
_CPU = _profile(
    "cpu",
    execution=Default(
        variant="eager",
        measurement=(
            "a compiled step takes 1.05 to 1.27 times the CPU time of an eager one, demo and tiny "
            "(measured)"
        ),
    ),
)
PROFILES: Mapping[str, Profile] = MappingProxyType(
    {one.hardware: one for one in (_h100("h100x4"), _h100("h100x8"), _B200, _CPU)}
)


def of(hardware: str) -> Profile:
    """The profile of `hardware`; hardware without a line has every flag at its fallback."""
    return PROFILES.get(hardware) or _profile(hardware)
