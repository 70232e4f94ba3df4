"""What a worker is built from: the shape of the model and the limits of its processes.

Frozen values without torch: the supervisor holds them and tells them to the fork server.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

MIB = 1024 * 1024
_MOST_RANKS = 8  # GPUs of one host
_MOST_CHUNKS_AHEAD = 16
_NUM_DOUBLINGS = 3  # of a decoder's picture
_BEST_JPEG = 95  # above it Pillow only makes larger files
# The second writes no code: it finds the faults that only a compiler shows, without its seconds.
_COMPILE_BACKENDS = ("inductor", "aot_eager")


class ConfigError(ValueError):
    """A value of the configuration is not allowed."""

    def __init__(self, key: str, value: object, allowed: str) -> None:
        super().__init__(f"{key} is {value!r}; allowed: {allowed}")
        self.key = key
        self.value = value
        self.allowed = allowed


class InjectedFault(StrEnum):
    """What a rank can be told to do wrong, for tests and drills only."""

    RAISE = "raise"
    DIE = "die"
    HANG = "hang"
    NAN = "nan"
    DISAGREE = "disagree"  # the follower counts one plan too many
    CORRUPT_PLAN = "corrupt_plan"  # the leader sends one follower a plan with a wrong checksum
    REFUSE_PREPARE = "refuse_prepare"  # the allocation of a prepared variant fails on this rank
    FLIP_LATE = "flip_late"  # the rank takes new flags one plan after it was told to


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One fault, at one step of every session of one launch."""

    kind: InjectedFault
    rank: int  # for CORRUPT_PLAN: the follower that gets the broken plan
    session_step: int = 2
    launch: int = 0  # 0 is the start, 1 the first restart: so that a recovery is seen to work


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Shape of the transformer and of the pictures it makes."""

    num_blocks: int
    width: int
    num_heads: int
    mlp_width: int
    grid: tuple[int, int]  # latent rows and columns of one frame
    num_extra_tokens: int  # registers beside the grid in each frame
    latent_channels: int
    num_passes: int
    window: int  # frames kept, the current one included
    reset_period: int  # steps between two resets of the positions
    rope_split: tuple[int, int, int]  # channels of a head turned by time, row and column
    first_forward_bounds: tuple[int, int]  # least and most prompt tokens
    pixels_per_token: int  # a side of the square that one latent cell covers
    cache_dtype: str = "float32"
    decoder: str = "streaming"
    # Of the streaming decoder, coarse to fine: wide where the picture is small.
    decoder_widths: tuple[int, int, int] = (256, 128, 64)
    seed: int = 2026

    def __post_init__(self) -> None:
        """Raises: ConfigError for the first value that is not allowed."""
        _check(
            "num_heads",
            self.num_heads,
            self.width % self.num_heads == 0,
            f"a divisor of the width {self.width}",
        )
        _check(
            "rope_split",
            self.rope_split,
            sum(self.rope_split) == self.head_width and not any(c % 2 for c in self.rope_split),
            f"even numbers that add up to the head width {self.head_width}",
        )
        _check(
            "reset_period",
            self.reset_period,
            self.reset_period > self.window,
            f"above the window {self.window}, so that a key is turned at most once",
        )
        low, high = self.first_forward_bounds
        _check(
            "first_forward_bounds", self.first_forward_bounds, 1 <= low <= high, "1 <= low <= high"
        )
        _check(
            "pixels_per_token",
            self.pixels_per_token,
            self.pixels_per_token % 2**_NUM_DOUBLINGS == 0,
            "a multiple of 8: the decoder doubles three times",
        )
        _check(
            "cache_dtype",
            self.cache_dtype,
            self.cache_dtype in {"float32", "bfloat16"},
            "float32, bfloat16",
        )
        _check("decoder", self.decoder, self.decoder in {"small", "streaming"}, "small, streaming")
        _check(
            "decoder_widths",
            self.decoder_widths,
            len(self.decoder_widths) == _NUM_DOUBLINGS and min(self.decoder_widths) >= 1,
            f"{_NUM_DOUBLINGS} numbers, 1 or more",
        )
        for key in ("num_blocks", "num_passes", "window", "latent_channels"):
            _check(key, getattr(self, key), getattr(self, key) >= 1, "1 or more")

    @property
    def head_width(self) -> int:
        """Channels of one head."""
        return self.width // self.num_heads

    @property
    def tokens_per_frame(self) -> int:
        """Tokens of one latent frame: the steady shape of every forward after the first."""
        return self.grid[0] * self.grid[1] + self.num_extra_tokens

    @property
    def latent_bytes(self) -> int:
        """Of one latent in float32."""
        return self.grid[0] * self.grid[1] * self.latent_channels * 4

    @property
    def frame_size(self) -> tuple[int, int]:
        """Height and width of a picture in pixels."""
        return self.grid[0] * self.pixels_per_token, self.grid[1] * self.pixels_per_token


FRAMES_PER_CHUNK = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """Where the weights come from, and the digest of the manifest that must be found there."""

    folder: str
    digest: str | None = None  # none: any checkpoint that agrees with its own manifest

    def __post_init__(self) -> None:
        """Raises: ConfigError for the first value that is not allowed."""
        # The ranks are forked by a process that may stand in another folder.
        _check("checkpoint.folder", self.folder, self.folder.startswith("/"), "an absolute path")
        is_digest = self.digest is None or re.fullmatch("[0-9a-f]{64}", self.digest) is not None
        _check("checkpoint.digest", self.digest, is_digest, "none, or 64 digits from 0 to f")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """One group: its model, its number of ranks, and the limits it is held to."""

    model: ModelConfig
    num_ranks: int = 2
    checkpoint: CheckpointSource | None = None  # none: weights drawn from the seed of the model
    # What a rank may allocate above its level after warm-up; none: as much as the machine gives.
    memory_headroom_bytes: int | None = None
    group_timeout_s: float = 2.0
    step_period_s: float = 4 / 24
    watchdog_floor_s: float = 1.0
    start_timeout_s: float = 60.0  # without a sign of progress; reading a checkpoint gives them
    # Added to it where `execution` compiles: the first time on a machine the compiler writes code.
    compile_timeout_s: float = 600.0
    compile_backend: str = "inductor"
    compiler_folder: str | None = None  # keeps that code for the next start
    max_chunks_ahead: int = 3
    # `fused_all` keeps this much for each length: 8 MiB a rank was seen to grow by 2.2 MB/s in a
    # demo with 5-second sessions, against a healthy drift of at most 0.2 MB/s.
    fused_all_granule_bytes: int = 8 * MIB
    # A floor of 180 ms a step makes about 22.5 fps of a 25 fps stream.
    small_tiles_floor_s: float = 0.180
    has_demo_variants: bool = False
    jpeg_quality: int = 80
    faults: tuple[Injection, ...] = field(default=())

    def __post_init__(self) -> None:
        """Raises: ConfigError for the first value that is not allowed."""
        heads = self.model.num_heads
        _check(
            "num_ranks",
            self.num_ranks,
            1 <= self.num_ranks <= _MOST_RANKS
            and heads % self.num_ranks == 0
            and self.model.mlp_width % self.num_ranks == 0,
            f"1 to {_MOST_RANKS}, a divisor of {heads} heads and of {self.model.mlp_width} (MLP)",
        )
        _check(
            "memory_headroom_bytes",
            self.memory_headroom_bytes,
            self.memory_headroom_bytes is None or self.memory_headroom_bytes >= MIB,
            "none, or 1 MiB or more",
        )
        for key in (
            "group_timeout_s",
            "step_period_s",
            "watchdog_floor_s",
            "start_timeout_s",
            "compile_timeout_s",
        ):
            _check(key, getattr(self, key), getattr(self, key) > 0, "above 0")
        _check(
            "compile_backend",
            self.compile_backend,
            self.compile_backend in _COMPILE_BACKENDS,
            ", ".join(_COMPILE_BACKENDS),
        )
        _check(
            "max_chunks_ahead",
            self.max_chunks_ahead,
            1 <= self.max_chunks_ahead <= _MOST_CHUNKS_AHEAD,
            f"1 to {_MOST_CHUNKS_AHEAD}",
        )
        _check(
            "jpeg_quality",
            self.jpeg_quality,
            1 <= self.jpeg_quality <= _BEST_JPEG,
            f"1 to {_BEST_JPEG}",
        )

    @property
    def watchdog_s(self) -> float:
        """How long a rank may show no progress before the group is killed."""
        return max(5 * self.step_period_s, self.watchdog_floor_s)

    @property
    def num_kept_steps(self) -> int:
        """Steps of which latents are kept: a window, and what may be computed and not delivered."""
        # One more is decoded, and one is planned ahead.
        return self.model.window + self.max_chunks_ahead + 2

    def for_launch(self, launch: int) -> "WorkerConfig":
        """The same, with only the faults that belong to this launch."""
        return replace(self, faults=tuple(f for f in self.faults if f.launch == launch))


def to_fields(config: WorkerConfig) -> dict[str, Any]:
    """The configuration as JSON values."""
    return asdict(config)


def from_fields(fields: Mapping[str, Any]) -> WorkerConfig:
    """The inverse of `to_fields`, after a trip through JSON. Raises: ConfigError."""
    model = dict(fields["model"])
    for key in ("grid", "rope_split", "first_forward_bounds", "decoder_widths"):
        model[key] = tuple(model[key])
    faults = tuple(
        Injection(**{**fault, "kind": InjectedFault(fault["kind"])}) for fault in fields["faults"]
    )
    source = fields["checkpoint"]
    return WorkerConfig(
        **{
            **fields,
            "model": ModelConfig(**model),
            "checkpoint": CheckpointSource(**source) if source else None,
            "faults": faults,
        }
    )


def _check(key: str, value: object, is_allowed: bool, allowed: str) -> None:  # noqa: FBT001 - a condition reads best in place
    if not is_allowed:
        raise ConfigError(key, value, allowed)


# 13 tokens a frame: odd and prime, like the 757 of production, so that no padding hides a mistake.
TINY_MODEL = ModelConfig(
    num_blocks=2,
    width=192,
    num_heads=12,
    mlp_width=768,
    grid=(3, 4),
    num_extra_tokens=1,
    latent_channels=8,
    num_passes=2,
    window=4,
    reset_period=10,
    rope_split=(8, 4, 4),
    first_forward_bounds=(1, 48),
    pixels_per_token=16,
    decoder_widths=(16, 8, 8),
)
# Window 2 and reset 3: every wrap and reset happens within a handful of steps.
TINY_EDGE_MODEL = replace(TINY_MODEL, window=2, reset_period=3, num_passes=4)
# 256 x 384 pixels from 24 tokens: the most head-room of the sizes that were tried on two cores.
DEMO_MODEL = ModelConfig(
    num_blocks=2,
    width=192,
    num_heads=12,
    mlp_width=768,
    grid=(4, 6),
    num_extra_tokens=0,
    latent_channels=16,
    num_passes=4,
    window=4,
    reset_period=42,
    rope_split=(8, 4, 4),
    first_forward_bounds=(8, 128),
    pixels_per_token=64,
    decoder="small",  # what it costs, and the other, stands in `worker.decode.small`
)


def tiny(model: ModelConfig = TINY_MODEL) -> WorkerConfig:
    """Two ranks of the smallest model with every edge in it: for tests."""
    return WorkerConfig(
        model=model,
        fused_all_granule_bytes=4 * MIB,
        step_period_s=0.02,
        has_demo_variants=True,
        watchdog_floor_s=1.5,
        group_timeout_s=10.0,
    )


def demo() -> WorkerConfig:
    """Two ranks that stream 256 x 384 above 24 fps while three such workers share two cores."""
    return WorkerConfig(
        model=DEMO_MODEL,
        step_period_s=0.16,
        # Beside other work on two cores a healthy rank was once silent for over a second; the
        # group's timeout stays above the watchdog, which knows whom to name.
        watchdog_floor_s=2.0,
        group_timeout_s=5.0,
        memory_headroom_bytes=96 * MIB,
        has_demo_variants=True,
    )


PRESETS = {"tiny": tiny, "demo": demo}
