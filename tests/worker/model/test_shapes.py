"""The arithmetic of the true shape: published figures, the design's derivations, and the program.

Expected numbers are those of the published article and of hand derivations from it; operations are
also counted in the real transformer on torch's meta device, which allocates nothing.
"""

from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from tests.worker.ranks import Sum
from worker import shapes
from worker.cache.ring import RingCursor, advanced
from worker.cache.write_time import WriteTimeCache
from worker.config import TINY_EDGE_MODEL, TINY_MODEL, ModelConfig
from worker.model import layout, weights
from worker.model.transformer import Transformer
from worker.shapes import FULL_MODEL, SHAPES

RANKS = (1, 2, 3, 4, 5, 6)


def test_full_has_the_published_frame_tokens_slots_and_calls() -> None:
    """704 x 1,088 pixels, 757 new tokens of 5,788 slots, 240 calls a step, a reset in 42."""
    assert FULL_MODEL.frame_size == (704, 1088)
    assert FULL_MODEL.tokens_per_frame == 757
    assert shapes.cache_slots(FULL_MODEL) == 5788
    assert FULL_MODEL.num_blocks * FULL_MODEL.num_passes == 240
    assert FULL_MODEL.reset_period == 42
    assert FULL_MODEL.head_width == 128


def test_full_has_about_57_billion_parameters() -> None:
    """16 widths squared a block: 943.7 M; 56.6 B in 60 blocks; with the rest 57 B."""
    a_block = shapes.product_parameters(FULL_MODEL) // 60
    assert a_block == 16 * 7680**2 == 943_718_400
    assert shapes.product_parameters(FULL_MODEL) == 56_623_104_000
    total = shapes.product_parameters(FULL_MODEL) + shapes.shared_parameters(FULL_MODEL)
    assert round(total / 1e9) == 57


@pytest.mark.parametrize("model", [FULL_MODEL, TINY_MODEL], ids=["full", "tiny"])
def test_the_formula_counts_what_a_checkpoint_holds(model: ModelConfig) -> None:
    """Two ways to the same number, one of them over tensors without storage."""
    held = [
        torch.empty(entry.shape, device="meta")
        for entries in layout.files(model).values()
        for entry in entries
    ]
    formula = shapes.product_parameters(model) + shapes.shared_parameters(model)
    assert sum(tensor.numel() for tensor in held) == formula


@pytest.mark.parametrize("num_ranks", RANKS)
def test_the_formula_counts_what_one_rank_draws(num_ranks: int) -> None:
    """The program itself at the true shape, on the meta device; two blocks, the rest is linear."""
    model = replace(FULL_MODEL, num_blocks=2)
    with torch.device("meta"):
        held = weights.draw(model, rank=num_ranks - 1, num_ranks=num_ranks)
    products = sum(b.input_ND.numel() + b.output_DK.numel() for b in held.blocks)
    assert products * num_ranks == shapes.product_parameters(model)
    others = [held.latent_in_DC, held.latent_out_CD, held.extra_ED, held.time_DD]
    others += [held.modulation_3DD, *(b.modulation_3D for b in held.blocks)]
    assert sum(tensor.numel() for tensor in others) == shapes.shared_parameters(model)


@pytest.mark.parametrize(
    ("num_ranks", "products_gb", "fp8_cache_gb"),
    # The design's table of shards. One rank: 56.6 GB and 5.33 GB; five: a fifth of it.
    [
        (1, 56.6, 5.33),
        (2, 28.3, 2.67),
        (3, 18.9, 1.78),
        (4, 14.2, 1.33),
        (5, 11.3, 1.07),
        (6, 9.4, 0.89),
    ],
)
def test_a_rank_holds_its_share(num_ranks: int, products_gb: float, fp8_cache_gb: float) -> None:
    """What must fit beside each other on one device."""
    fp8 = shapes.weight_bytes(FULL_MODEL, num_ranks=num_ranks, product_bytes=shapes.FP8_BYTES)
    bf16 = shapes.weight_bytes(FULL_MODEL, num_ranks=num_ranks, product_bytes=shapes.BF16_BYTES)
    beside = shapes.shared_parameters(FULL_MODEL) * shapes.BF16_BYTES
    assert (fp8 - beside) / 1e9 == pytest.approx(products_gb, abs=0.05)
    assert bf16 - beside == 2 * (fp8 - beside)
    cache = shapes.cache_bytes(FULL_MODEL, num_ranks=num_ranks, element_bytes=shapes.FP8_BYTES)
    assert cache / 1e9 == pytest.approx(fp8_cache_gb, abs=0.005)


def test_the_cache_in_bf16_takes_twice_that_in_fp8() -> None:
    """10.67 GB for a session on all ranks."""
    cache = shapes.cache_bytes(FULL_MODEL, num_ranks=1, element_bytes=shapes.BF16_BYTES)
    assert cache / 1e9 == pytest.approx(10.67, abs=0.005)


def test_a_session_takes_the_published_rate_within_a_percent() -> None:
    """375 TFLOP a step at six steps a second: 2.25 PFLOP/s, against the published 2.24."""
    assert shapes.step_flops(FULL_MODEL) / 1e12 == pytest.approx(375.2, abs=0.05)
    assert shapes.step_flops(FULL_MODEL) * 6 / 2.24e15 == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize("num_ranks", RANKS)
def test_the_program_does_the_operations_of_the_formula(num_ranks: int) -> None:
    """A step over a full window, counted in the transformer as it runs: on one rank, two blocks.

    What it does outside the blocks is the way into and out of the latent.
    """
    model = replace(FULL_MODEL, num_blocks=2)
    with torch.device("meta"), torch.inference_mode():
        held = weights.draw(model, rank=0, num_ranks=num_ranks)
        rank = Transformer(model, held, num_ranks=num_ranks)
        cache = WriteTimeCache(model, num_heads=rank.num_heads)
        rank.first_forward(torch.empty(489, 7680), cache, reduce=Sum())
        cursor = RingCursor(window=model.window, reset_period=model.reset_period)
        for _ in range(model.window):
            cache.open_frame(cursor)
            cursor = advanced(cursor)
        keys, _ = cache.read(0)
        with FlopCounterMode(display=False) as counted:
            noise = torch.empty(748, model.latent_channels)
            rank.denoised(noise, cache, cursor, reduce=Sum())
    assert keys.shape == (60 // num_ranks, 5788, 128)
    latents = 2 * model.num_passes * 2 * 748 * model.latent_channels * model.width
    expected = shapes.step_flops(model) // num_ranks + latents
    assert counted.get_total_flops() == expected


def test_full_divides_by_every_number_of_ranks_but_seven_and_eight() -> None:
    """So eight GPUs are two sessions of three ranks and a decoder."""
    assert shapes.allowed_ranks(FULL_MODEL) == RANKS


def test_one_of_three_ranks_has_the_products_of_the_facts() -> None:
    """[757, 7680] x [7680, 28160] and [757, 12800] x [12800, 7680]: 327 and 149 GFLOP."""
    shard = SHAPES["shard3"]
    assert (shard.num_ranks, shard.is_summed) == (3, False)
    with torch.device("meta"):
        held = weights.draw(replace(shard.model, num_blocks=1), rank=1, num_ranks=3)
    assert held.blocks[0].input_ND.shape == (28160, 7680)
    assert held.blocks[0].output_DK.shape == (7680, 12800)


def test_the_small_shapes_are_those_that_the_tests_run() -> None:
    """Window 2 and reset 3 in `tiny-edge`: every wrap and reset within a handful of steps."""
    assert SHAPES["tiny"].model is TINY_MODEL
    assert SHAPES["tiny-edge"].model is TINY_EDGE_MODEL
    assert (TINY_EDGE_MODEL.window, TINY_EDGE_MODEL.reset_period) == (2, 3)


@pytest.mark.parametrize(
    ("tokens", "rows"), [(1, 128), (128, 128), (129, 256), (489, 512), (757, 768)]
)
def test_rows_are_padded_to_whole_tiles(tokens: int, rows: int) -> None:
    """757 becomes 768, which 2, 3, 4 and 6 ranks divide."""
    assert shapes.padded_rows(tokens) == rows
