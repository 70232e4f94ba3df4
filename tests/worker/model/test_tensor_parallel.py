"""The shards of a checkpoint add up to the whole in double precision; so does the program."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody knows
from safetensors.torch import load_file
from torch import Tensor

from tests.worker.model import folders
from worker.cache import variants
from worker.cache.variants import KvCache
from worker.model import checkpoint, layout, weights
from worker.model.transformer import Transformer
from worker.model.weights import BlockWeights

RANKS = (1, 2, 3, 4, 6)
TOKENS = 13


def _attended(q: Tensor, k: Tensor, v: Tensor, *, num_heads: int) -> Tensor:
    heads = [each.view(TOKENS, num_heads, -1).transpose(0, 1) for each in (q, k, v)]
    scores = heads[0] @ heads[1].transpose(1, 2) / math.sqrt(heads[0].shape[-1])
    return (scores.softmax(-1) @ heads[2]).transpose(0, 1).flatten(1)


def _whole(tensors: dict[str, Tensor], x: Tensor) -> Tensor:
    """The block from the plain tensors of the file, without fusion: nothing of ours in it."""
    q, k, v, gate, up = (x @ tensors[n].T for n in ("query", "key", "value", "gate", "up"))
    attention = _attended(q, k, v, num_heads=folders.MODEL.num_heads)
    mlp = F.silu(gate) * up
    return attention @ tensors["attention_out"].T + mlp @ tensors["mlp_out"].T


def _part(held: BlockWeights, x: Tensor, *, num_ranks: int) -> Tensor:
    """One rank's part of the same block, from the fused products that it holds."""
    wide, mlp = folders.MODEL.width // num_ranks, folders.MODEL.mlp_width // num_ranks
    q, k, v, gate, up = torch.split(x @ held.input_ND.T, [wide, wide, wide, mlp, mlp], dim=1)
    attention = _attended(q, k, v, num_heads=folders.MODEL.num_heads // num_ranks)
    return torch.cat([attention, F.silu(gate) * up], dim=1) @ held.output_DK.T


def _largest_error(folder: Path, *, num_ranks: int, swapped: bool = False) -> float:
    folders.written(folder)
    opened = checkpoint.opened(folder, folders.MODEL)
    ranks = [
        checkpoint.load(opened, rank=rank, num_ranks=num_ranks, dtype=torch.float64)
        for rank in range(num_ranks)
    ]
    generator = torch.Generator().manual_seed(11)
    x = torch.randn(TOKENS, folders.MODEL.width, dtype=torch.float64, generator=generator)
    worst = 0.0
    for block in range(folders.MODEL.num_blocks):
        stored = load_file(folder / layout.block_file(block))
        expected = _whole({name: tensor.double() for name, tensor in stored.items()}, x)
        held = [rank.blocks[block] for rank in ranks]
        if swapped:
            held[0] = BlockWeights(
                input_ND=held[0].input_ND,
                output_DK=held[1].output_DK,
                modulation_3D=held[0].modulation_3D,
            )
        total = sum((_part(each, x, num_ranks=num_ranks) for each in held), torch.zeros(()))
        worst = max(worst, ((total - expected).abs().max() / expected.abs().max()).item())
    return worst


@pytest.mark.parametrize("num_ranks", RANKS)
def test_the_parts_of_all_ranks_add_up_to_the_whole_block(tmp_path: Path, num_ranks: int) -> None:
    """To rounding of float64: a wrong row, column or head would be off by the size of a term."""
    assert _largest_error(tmp_path, num_ranks=num_ranks) < 1e-13


def test_the_comparison_notices_columns_of_another_rank(tmp_path: Path) -> None:
    """Same shapes, same norms: statistics would not show it."""
    assert _largest_error(tmp_path, num_ranks=3, swapped=True) > 1e-2


class Kept:
    """Takes this rank's part for the sum, and keeps it."""

    def __init__(self) -> None:
        self.given: list[Tensor] = []

    def product(self, joined_TK: Tensor, weight_DK: Tensor, *, is_first_forward: bool) -> Tensor:  # noqa: N803 - as the port
        assert is_first_forward
        self.given.append(F.linear(joined_TK, weight_DK))
        return self.given[-1]


def _first_partial(*, rank: int, num_ranks: int) -> Tensor:
    """What one rank of the transformer gives to the first sum of a first forward."""
    model = replace(folders.MODEL, num_blocks=1)
    kept = Kept()
    with torch.inference_mode():
        held = weights.draw(model, rank=rank, num_ranks=num_ranks)
        transformer = Transformer(model, held, num_ranks=num_ranks)
        prompt = torch.randn(TOKENS, model.width, generator=torch.Generator().manual_seed(3))
        cache = variants.new(KvCache.WRITE_TIME_BF16, model, num_heads=model.num_heads // num_ranks)
        transformer.first_forward(prompt, cache, reduce=kept)
    return kept.given[0].double()


@pytest.mark.parametrize("num_ranks", RANKS)
def test_the_partial_products_of_the_transformer_add_up(num_ranks: int) -> None:
    """Its own norm, turn, cache and attention between: to rounding of float32."""
    whole = _first_partial(rank=0, num_ranks=1)
    parts = [_first_partial(rank=rank, num_ranks=num_ranks) for rank in range(num_ranks)]
    error = (torch.stack(parts).sum(0) - whole).abs().max() / whole.abs().max()
    assert error.item() < 1e-6
    assert num_ranks == 1 or (parts[0] - whole).abs().max() > 0.1 * whole.abs().max()
