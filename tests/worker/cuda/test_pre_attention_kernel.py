"""The kernel of `pre_attention=fused` on a GPU against the same function in torch's operations.

Needs nothing of the other tests: on a machine with a GPU and little else,
`python -m pytest -c /dev/null --rootdir . --noconftest --import-mode=importlib tests/worker/cuda`
runs it.
"""

# ruff: noqa: N803, N806 - shape suffixes in names

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from worker.ops import fp8, norm, pre_attention, rope
from worker.ops.pre_attention import Heads, Place

pytestmark = pytest.mark.cuda

# Production's rank, then odd ones: no head or token count that a tile divides, one token, one head.
SHAPES = [(20, 757, 128), (3, 13, 16), (2, 1, 24), (5, 16, 64), (1, 33, 128), (7, 130, 80)]
every_shape = pytest.mark.parametrize(("H", "T", "D"), SHAPES)
SLOT = 5  # of the first new token: no multiple of anything


def _reference(heads: Heads, turn: rope.Turn, place: Place) -> Tensor:
    """What the docstring of `fused` promises, op by op in float32."""
    q_HTD = rope.rotated(norm.rms_norm(heads.q_HTD.float()), turn)
    k_HTD = rope.rotated(norm.rms_norm(heads.k_HTD.float()), turn)
    k_HTD, v_HTD = pre_attention.stored(k_HTD, heads.v_HTD, place)
    pre_attention.write_slots(place.keys_HSD, place.values_HSD, place.at_T, k_HTD, v_HTD)
    return q_HTD.to(heads.q_HTD.dtype)


@dataclass(frozen=True, slots=True)
class Case:
    """New tokens as views of one input product, their turn, and fresh places."""

    heads: Heads
    turn: rope.Turn
    place: Callable[[], Place]


def _case(H: int, T: int, D: int, *, dtype: torch.dtype, cache: torch.dtype) -> Case:
    generator = torch.Generator(device="cuda").manual_seed(H * T + D)
    product_TN = torch.randn(T, 3 * H * D + 64, generator=generator, device="cuda").to(dtype)
    q, k, v = (
        product_TN[:, part * H * D : (part + 1) * H * D].view(T, H, D).transpose(0, 1)
        for part in range(3)
    )
    angles = 3 * torch.randn(T, D // 2, generator=generator, device="cuda", dtype=torch.float64)
    turn = rope.Turn(angles.cos().float(), angles.sin().float())
    # Of which some clamp a little and some much.
    scales_2H = 0.002 + 0.01 * torch.rand(2, H, generator=generator, device="cuda")
    at_T = torch.arange(SLOT, SLOT + T, device="cuda")
    S = SLOT + T + 3

    def place() -> Place:
        if cache != fp8.E4M3:
            keys, values = (torch.zeros(H, S, D, dtype=cache, device="cuda") for _ in range(2))
            return Place(keys_HSD=keys, values_HSD=values, at_T=at_T)
        keys, across = (
            torch.zeros(shape, dtype=torch.uint8, device="cuda").view(fp8.E4M3)
            for shape in ((H, S, D), (H, D, S))
        )
        return Place(
            keys_HSD=keys,
            values_HSD=across.transpose(1, 2),
            at_T=at_T,
            scales=fp8.HeadScales(key_H=scales_2H[0], value_H=scales_2H[1]),
            clamped_2H=torch.zeros(2, H, dtype=torch.int64, device="cuda"),
        )

    return Case(Heads(q_HTD=q, k_HTD=k, v_HTD=v), turn, place)


def _bytes(stored: Tensor) -> Tensor:
    return stored.view(torch.uint8) if stored.dtype == fp8.E4M3 else stored


@every_shape
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_in_fp8_the_kernel_writes_the_bytes_of_the_reference(
    H: int, T: int, D: int, dtype: torch.dtype
) -> None:
    """But for a rare key on the border of two numbers; counts of clamped ones are equal."""
    case = _case(H, T, D, dtype=dtype, cache=fp8.E4M3)
    expected, found = case.place(), case.place()
    q_expected = _reference(case.heads, case.turn, expected)
    q_found = pre_attention.fused(case.heads, case.turn, found)
    differing = (_bytes(expected.keys_HSD) != _bytes(found.keys_HSD)).float().mean()
    assert differing.item() < 1e-4
    assert torch.equal(_bytes(expected.values_HSD), _bytes(found.values_HSD))
    assert expected.clamped_2H is not None
    assert found.clamped_2H is not None
    assert torch.equal(expected.clamped_2H, found.clamped_2H)
    torch.testing.assert_close(q_found, q_expected)


@every_shape
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cache", [torch.float32, torch.bfloat16])
def test_without_fp8_the_kernel_differs_by_the_last_bit(
    H: int, T: int, D: int, dtype: torch.dtype, cache: torch.dtype
) -> None:
    """Sums are added in another order."""
    case = _case(H, T, D, dtype=dtype, cache=cache)
    expected, found = case.place(), case.place()
    q_expected = _reference(case.heads, case.turn, expected)
    q_found = pre_attention.fused(case.heads, case.turn, found)
    torch.testing.assert_close(q_found, q_expected)
    torch.testing.assert_close(found.keys_HSD, expected.keys_HSD)
    assert torch.equal(found.values_HSD, expected.values_HSD)


def test_no_other_slot_is_touched() -> None:
    """Neither before nor after, whatever the tile."""
    case = _case(3, 13, 16, dtype=torch.bfloat16, cache=fp8.E4M3)
    place = case.place()
    pre_attention.fused(case.heads, case.turn, place)
    for stored in (place.keys_HSD, place.values_HSD):
        numbers = stored.float()
        assert not numbers[:, :SLOT].any()
        assert not numbers[:, SLOT + 13 :].any()
        assert numbers[:, SLOT : SLOT + 13].any()


def test_a_nan_stays_one_and_is_counted() -> None:
    """A clamp would make it a healthy number."""
    case = _case(3, 13, 16, dtype=torch.float32, cache=fp8.E4M3)
    case.heads.v_HTD[1, 3, 5] = float("nan")
    expected, found = case.place(), case.place()
    _reference(case.heads, case.turn, expected)
    pre_attention.fused(case.heads, case.turn, found)
    assert found.values_HSD[1, SLOT + 3, 5].float().isnan()
    assert expected.clamped_2H is not None
    assert found.clamped_2H is not None
    assert torch.equal(expected.clamped_2H, found.clamped_2H)
    assert found.clamped_2H[1, 1] > 0


def test_a_compiled_call_writes_what_an_eager_one_writes() -> None:
    """The compiler has to see that the kernel changes the slots and the counts."""
    case = _case(20, 757, 128, dtype=torch.bfloat16, cache=fp8.E4M3)
    eager, compiled = case.place(), case.place()
    expected = pre_attention.fused(case.heads, case.turn, eager)
    form = torch.compile(pre_attention.fused, fullgraph=True, dynamic=False)
    assert torch.equal(form(case.heads, case.turn, compiled), expected)
    for one, other in zip(
        (eager.keys_HSD, eager.values_HSD), (compiled.keys_HSD, compiled.values_HSD), strict=True
    ):
        assert torch.equal(_bytes(one), _bytes(other))
    assert eager.clamped_2H is not None
    assert compiled.clamped_2H is not None
    assert torch.equal(eager.clamped_2H, compiled.clamped_2H)


def test_a_recorded_graph_writes_at_the_slots_of_its_replay() -> None:
    """One graph serves all frames: the slot is read by the device."""
    case = _case(3, 13, 16, dtype=torch.bfloat16, cache=torch.bfloat16)
    place = case.place()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call] # torch leaves it untyped
    with torch.cuda.stream(stream):
        pre_attention.fused(case.heads, case.turn, place)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            pre_attention.fused(case.heads, case.turn, place)
    expected = place.keys_HSD[:, SLOT : SLOT + 13].clone()
    place.keys_HSD.zero_()
    place.at_T.sub_(SLOT)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(place.keys_HSD[:, :13], expected)
    assert not place.keys_HSD[:, 13:].any()
