"""Streams of sessions that a rule of rollback is tried on, drawn from fixed seeds.

A block is what arrives between two looks: 10 canary and 40 control sessions, 40 blocks at most.
The calls of the generator are those of the study that the figures of the design come from, in their
order, so that its streams and these are equal to the bit.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

NUM_BLOCKS: Final = 40
CANARY: Final = 10  # sessions of a block
CONTROL: Final = 40
# Rates of a healthy fleet: slow as published for the fifteen good days; failed is assumed.
SLOW_RATE: Final = 0.007
FAILURE_RATE: Final = 0.002
_SEED: Final = 20261130
# Frame rates of the model: sessions that keep up cluster here, those that do not have a long tail.
_PACE_FPS, _SPREAD_FPS, _TAIL_FPS = 24.5, 0.12, 0.6

# What a rule must not roll back: 1 % at most in each world.
QUALIFYING: Final = ("AA_0.7", "AA_7", "AA_drift_0.7_15", "SIMPSON_AA", "LEMON_AA_by_session")
# What it is scored on.
HEADLINE: Final = ("REG_0.7_7", "REG_0.7_23", "OOM_5", "OOM_5_after150")
# In the order of their seeds.
SCENARIOS: Final = (
    "AA_0.7",
    "AA_7",
    "AA_drift_0.7_15",
    "SIMPSON_AA",
    "LEMON_AA_by_worker",
    "LEMON_AA_by_session",
    "REG_0.7_2",
    "REG_0.7_7",
    "REG_0.7_23",
    "REG_7_23",
    "SHIFT_0.2",
    "OOM_5",
    "OOM_5_after150",
    "OOM_20_after150",
    "SIMPSON_REG",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Sessions of one arm, a row a stream, in the order they start."""

    num_a_block: int
    stratum: Ints  # of each session of a stream: 1 is the old card of the Simpson scenarios
    failed: Bools
    slow: Bools  # and not failed
    fps: Floats  # NaN where failed

    @property
    def harmed(self) -> Bools:
        """Slow or failed."""
        return self.slow | self.failed

    def by_block(self, chosen: Bools) -> Ints:
        """How many of each block are chosen, a row a stream."""
        counted: Ints = chosen.reshape(len(chosen), -1, self.num_a_block).sum(2)
        return counted

    def in_order(self, columns: Ints) -> Self:
        """The arm with its sessions in another order."""
        return replace(
            self,
            stratum=self.stratum[columns],
            failed=self.failed[:, columns],
            slow=self.slow[:, columns],
            fps=self.fps[:, columns],
        )

    def first(self, num_streams: int) -> Self:
        """The arm of the first streams alone."""
        return replace(
            self,
            failed=self.failed[:num_streams],
            slow=self.slow[:num_streams],
            fps=self.fps[:num_streams],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Both arms of one scenario."""

    name: str
    canary: Arm
    control: Arm

    @property
    def num_streams(self) -> int:
        """Rows."""
        return len(self.canary.slow)

    @property
    def strata(self) -> tuple[int, ...]:
        """Those that sessions are drawn in."""
        return tuple(sorted({int(one) for one in self.canary.stratum}))

    def first(self, num_streams: int) -> Self:
        """The first streams alone."""
        return replace(
            self, canary=self.canary.first(num_streams), control=self.control.first(num_streams)
        )

    def digest(self) -> str:
        """Of every outcome, and of every frame rate to the millionth."""
        total = hashlib.sha256()
        for arm in (self.canary, self.control):
            millionths = np.round(np.nan_to_num(arm.fps) * 1e6).astype("<i8")
            for values in (arm.failed, arm.slow, millionths):
                total.update(np.ascontiguousarray(values).tobytes())
        return total.hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What sessions are drawn from; rates broadcast over streams."""

    slow: tuple[Floats, Floats]  # canary, control
    failed: tuple[Floats, Floats]
    stratum: tuple[Ints, Ints]
    shift_fps: float = 0.0


def seed_of(name: str) -> int:
    """The seed that the study draws a scenario from."""
    return SCENARIOS.index(name)


def scenario(name: str, *, num_streams: int, seed: int) -> Streams:
    """Draw one scenario.

    Raises:
        ValueError: no scenario has this name.
    """
    randomness = np.random.default_rng([seed, _SEED])
    truth = _truth(name, num_streams, randomness)
    return drawn(name, truth, num_streams=num_streams, randomness=randomness)


def drawn(name: str, truth: Truth, *, num_streams: int, randomness: np.random.Generator) -> Streams:
    """Draw sessions of both arms from rates."""
    sizes = [(num_streams, len(stratum)) for stratum in truth.stratum]
    failed = [
        randomness.random(size) < rate for size, rate in zip(sizes, truth.failed, strict=True)
    ]
    slow = [
        (randomness.random(size) < rate) & ~dead
        for size, rate, dead in zip(sizes, truth.slow, failed, strict=True)
    ]
    shifts = (truth.shift_fps, 0.0)
    fps = [
        np.where(dead, np.nan, _fps(randomness, late, shift_fps=shift))
        for late, dead, shift in zip(slow, failed, shifts, strict=True)
    ]
    canary, control = (
        Arm(
            num_a_block=size,
            stratum=truth.stratum[arm],
            failed=failed[arm],
            slow=slow[arm],
            fps=fps[arm],
        )
        for arm, size in enumerate((CANARY, CONTROL))
    )
    return Streams(name=name, canary=canary, control=control)


def _fps(randomness: np.random.Generator, slow: Bools, *, shift_fps: float) -> Floats:
    pace = _PACE_FPS + shift_fps + _SPREAD_FPS * randomness.standard_normal(slow.shape)
    # Who is not slow stays above the threshold, by a little that varies, so that nobody ties.
    pace = np.maximum(pace, 24.0 + 1e-3 + 0.02 * randomness.random(slow.shape))
    return np.where(slow, 24.0 - randomness.exponential(_TAIL_FPS, slow.shape), pace)


def _truth(name: str, num_streams: int, randomness: np.random.Generator) -> Truth:
    if name.startswith("LEMON"):
        return _lemons(name, num_streams, randomness)
    if name.startswith("SIMPSON"):
        return _simpson(name)
    return _plain(name)


def _plain(name: str) -> Truth:
    canary, control = NUM_BLOCKS * CANARY, NUM_BLOCKS * CONTROL
    slow = np.full(canary, SLOW_RATE), np.full(control, SLOW_RATE)
    failed = np.full(canary, FAILURE_RATE), np.full(control, FAILURE_RATE)
    shift_fps = 0.0
    match name.split("_"):
        case ["AA", rate]:
            slow[0][:] = slow[1][:] = float(rate) / 100
        case ["AA", "drift", _, rate]:  # an incident of the fleet hits both arms at half-time
            slow[0][canary // 2 :] = slow[1][control // 2 :] = float(rate) / 100
        case ["REG", before, after]:
            slow[1][:], slow[0][:] = float(before) / 100, float(after) / 100
        case ["SHIFT", lower]:
            shift_fps = -float(lower)
        case ["OOM", rate]:
            failed[0][:] = float(rate) / 100
        case ["OOM", rate, after]:
            failed[0][int(after.removeprefix("after")) :] = float(rate) / 100
        case _:
            raise ValueError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    return Truth(slow=slow, failed=failed, stratum=_strata(0, 0), shift_fps=shift_fps)


# Old cards of a block in both arms; slow rates of new and old cards, canary first.
_SIMPSON: Final[Mapping[str, tuple[int, int, tuple[float, float], tuple[float, float]]]] = {
    # The canary mostly on old cards, no effect anywhere.
    "SIMPSON_AA": (8, 8, (0.003, 0.08), (0.003, 0.08)),
    # The canary mostly on new cards, worse on both.
    "SIMPSON_REG": (1, 20, (0.04, 0.20), (0.003, 0.08)),
}


def _simpson(name: str) -> Truth:
    if name not in _SIMPSON:
        raise ValueError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    canary_old, control_old, canary, control = _SIMPSON[name]
    stratum = _strata(canary_old, control_old)
    failed = np.full(1, FAILURE_RATE)
    slow = np.array(canary)[stratum[0]], np.array(control)[stratum[1]]
    return Truth(slow=slow, failed=(failed, failed), stratum=stratum)


def _strata(canary_old: int, control_old: int) -> tuple[Ints, Ints]:
    canary = np.arange(NUM_BLOCKS * CANARY) % CANARY < canary_old
    control = np.arange(NUM_BLOCKS * CONTROL) % CONTROL < control_old
    return canary.astype(np.int64), control.astype(np.int64)


def _lemons(name: str, num_streams: int, randomness: np.random.Generator) -> Truth:
    """50 workers, each a lemon by 5 %: 30 % slow instead of 0.3 %. The flag does nothing."""
    size = CANARY + CONTROL
    rate = np.where(randomness.random((num_streams, size)) < 0.05, 0.30, 0.003)
    if name == "LEMON_AA_by_worker":  # ten of them are the canary for good
        slow = np.tile(rate[:, :CANARY], NUM_BLOCKS), np.tile(rate[:, CANARY:], NUM_BLOCKS)
    elif name == "LEMON_AA_by_session":  # the arm is drawn anew in every block
        order = np.argsort(randomness.random((num_streams, NUM_BLOCKS, size)), axis=2)
        drawn = np.take_along_axis(np.repeat(rate[:, None, :], NUM_BLOCKS, 1), order, 2)
        slow = (
            drawn[:, :, :CANARY].reshape(num_streams, -1),
            drawn[:, :, CANARY:].reshape(num_streams, -1),
        )
    else:
        raise ValueError(f"no scenario {name!r}; there are {', '.join(SCENARIOS)}")
    failed = np.full(1, FAILURE_RATE)
    return Truth(slow=slow, failed=(failed, failed), stratum=_strata(0, 0))
