"""The shapes that the worker is built for, and what each takes: parameters, bytes, operations.

Pure integers without torch. `full` is the shape of production as derived in section "Derived" of
the facts; it stands beside the presets, not among them: it fits no machine without its GPUs.
"""

from dataclasses import dataclass, replace

from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig

BF16_BYTES = 2
FP8_BYTES = 1
# Row counts of FP8 products: cuBLAS wants multiples of 16, its tiles are 128 rows high. 757 tokens
# become 768, which 2, 3, 4 and 6 ranks divide too.
ROW_MULTIPLE = 128

# 60 heads of 128 and a gated MLP of 4 widths make 16 x 7,680^2 = 944 M parameters a block.
# 22 x 34 cells of 32 pixels are 704 x 1,088; 9 tokens of conditioning make 757; 489 prefix slots
# and 7 frames make the published 5,788. The latent's 128 channels are an assumption: open models
# with cells of 32 x 32 have as many, and they weigh 2 M parameters of 57 B.
FULL_MODEL = ModelConfig(
    num_blocks=60,
    width=7_680,
    num_heads=60,
    mlp_width=30_720,
    grid=(22, 34),
    num_extra_tokens=9,
    latent_channels=128,
    num_passes=4,
    window=7,
    reset_period=42,
    rope_split=(44, 42, 42),
    first_forward_bounds=(1, 489),
    pixels_per_token=32,
    cache_dtype="bfloat16",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A model and the ranks it is split over."""

    model: ModelConfig
    num_ranks: int
    # False: one rank computes its part alone and takes it for the sum. Its times are true but for
    # communication, its pictures are not.
    is_summed: bool = True


SHAPES = {
    "full": Shape(model=FULL_MODEL, num_ranks=3),
    "shard3": Shape(model=FULL_MODEL, num_ranks=3, is_summed=False),
    # A tenth of the blocks: short enough to profile.
    "shard3-l6": Shape(model=replace(FULL_MODEL, num_blocks=6), num_ranks=3, is_summed=False),
    "tiny": Shape(model=TINY_MODEL, num_ranks=2),
    "tiny-edge": Shape(model=TINY_EDGE_MODEL, num_ranks=2),
}


def allowed_ranks(model: ModelConfig, *, most: int = 8) -> tuple[int, ...]:
    """The numbers of ranks up to `most` that heads and MLP divide by."""
    return tuple(
        ranks
        for ranks in range(1, most + 1)
        if model.num_heads % ranks == 0 and model.mlp_width % ranks == 0
    )


def product_parameters(model: ModelConfig) -> int:
    """Parameters of the input and output products of all blocks: what is split over ranks."""
    # Queries, keys, values and the attention's half of the output; gate, up and down of the MLP.
    return model.num_blocks * (4 * model.width**2 + 3 * model.width * model.mlp_width)


def shared_parameters(model: ModelConfig) -> int:
    """All other parameters: every rank holds them whole."""
    tables = model.num_blocks * 3 * model.width
    latents = 2 * model.latent_channels * model.width
    conditioning = model.num_extra_tokens * model.width + 4 * model.width**2
    return tables + latents + conditioning


def weight_bytes(model: ModelConfig, *, num_ranks: int, product_bytes: int) -> int:
    """Bytes of weights of one rank; products take `product_bytes` a parameter, the rest BF16."""
    split = product_parameters(model) // num_ranks
    return split * product_bytes + shared_parameters(model) * BF16_BYTES


def cache_slots(model: ModelConfig) -> int:
    """Tokens that one attention call reads once the window is full."""
    return model.first_forward_bounds[1] + model.window * model.tokens_per_frame


def cache_bytes(model: ModelConfig, *, num_ranks: int, element_bytes: int) -> int:
    """Bytes of keys and values of one session on one rank."""
    channels = model.num_blocks * model.width // num_ranks
    return 2 * channels * cache_slots(model) * element_bytes


def forward_flops(model: ModelConfig, *, num_tokens: int, num_slots: int) -> int:
    """Operations of the blocks in one forward of `num_tokens` over `num_slots`, all ranks."""
    products = 2 * product_parameters(model) * num_tokens
    return products + 4 * num_tokens * num_slots * model.width * model.num_blocks


def step_flops(model: ModelConfig) -> int:
    """Operations of the blocks in one step over a full window, all ranks."""
    return model.num_passes * forward_flops(
        model, num_tokens=model.tokens_per_frame, num_slots=cache_slots(model)
    )


def padded_rows(num_tokens: int) -> int:
    """The rows of a product over `num_tokens`: few shapes, however many lengths there are."""
    return -(-num_tokens // ROW_MULTIPLE) * ROW_MULTIPLE
