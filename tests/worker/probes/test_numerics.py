"""The plain path against the flags: right code passes, each fault fails in its own phase."""

# ruff: noqa: N803 - shape suffixes in names; the legend is in `worker.ops.pre_attention`

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.worker.probes import faults
from worker import flags as flag_registry
from worker.probes import bounds, compiled, numerics
from worker.probes.bounds import Phase, Precision
from worker.probes.check import Check, Verdict
from worker.probes.subject import MODELS, Subject

_SEED = 7
_FP8 = {"kv_cache": "write_time_fp8"}


def _found(subject: Subject, backend: str = "eager") -> dict[str, Check]:
    form = compiled.subject_by(backend, subject, folder=Path("unused"))
    checks = numerics.run(form, name=backend, seed=_SEED)
    return {check.name.rpartition("/")[2]: check for check in checks}


def _failed(found: dict[str, Check]) -> set[str]:
    return {name for name, check in found.items() if check.verdict is Verdict.FAIL}


@pytest.mark.parametrize("position_reset", flag_registry.POSITION_RESET.variants)
@pytest.mark.parametrize("kv_cache", flag_registry.KV_CACHE.variants)
def test_every_cache_with_every_reset_is_within_its_bounds(
    kv_cache: str, position_reset: str
) -> None:
    found = _found(faults.subject(kv_cache=kv_cache, position_reset=position_reset))
    assert {check.verdict for check in found.values()} == {Verdict.PASS}
    assert set(found) == {*Phase, "kept", "repeat"}


@pytest.mark.parametrize("flags", [{}, _FP8], ids=["fallback", "fp8"])
def test_compiled_is_held_to_the_same_bounds(flags: dict[str, str]) -> None:
    found = _found(faults.subject(pre_attention="fused", **flags), "aot_eager")
    assert _failed(found) == set()


def test_the_plain_path_is_held_to_itself_bit_for_bit() -> None:
    subject = replace(faults.subject(), flags=flag_registry.plain())
    found = _found(subject)
    assert [found[phase].bound for phase in (Phase.FILL, Phase.WRAP, Phase.RESET)] == [0, 0, 0]
    assert _failed(found) == set()


@pytest.mark.slow
@pytest.mark.parametrize("flags", [{}, _FP8], ids=["bf16", "fp8"])
def test_the_heads_of_production_are_within_their_bounds(flags: dict[str, str]) -> None:
    assert _failed(_found(faults.subject("full", **flags))) == set()


@pytest.mark.parametrize("flags", [{}, _FP8], ids=["float32", "fp8"])
def test_a_reset_that_only_moves_the_counter_fails_at_the_reset(flags: dict[str, str]) -> None:
    """In FP8 too, whose own error must not hide it."""
    found = _found(replace(faults.subject(**flags), session=faults.OnlyCounts))
    assert {"reset"} <= _failed(found) <= {"reset", "flip"}
    assert found["reset"].value is not None
    assert found["reset"].value > 2 * bounds.TABLE[Precision.FP8].limit


def test_a_reset_that_touches_more_than_time_fails_bit_for_bit() -> None:
    """Too little to see in any latent."""
    assert _failed(_found(replace(faults.subject(), session=faults.TouchesValues))) == {"kept"}


def test_a_flip_that_loses_the_window_fails_at_the_flip_alone() -> None:
    subject = replace(faults.subject(**_FP8), session=faults.ForgetsConversion)
    assert _failed(_found(subject)) == {"flip"}


def test_a_number_that_is_none_fails_every_phase() -> None:
    found = _found(faults.with_op(faults.not_a_number))
    assert {*Phase} <= _failed(found)
    assert found["fill"].value is None
    assert "no finite number" in found["fill"].detail


def test_what_ends_a_step_fails() -> None:
    def op(*_: object) -> Tensor:
        raise RuntimeError("no kernel for this shape")

    (check,) = numerics.run(faults.with_op(op), name="eager", seed=_SEED)
    assert check.verdict is Verdict.FAIL
    assert "no kernel for this shape" in check.detail


@pytest.fixture
def undeclared() -> Iterator[Callable[..., None]]:
    """A write whose schema does not say so."""
    library = torch.library.Library("steadyframe_probe_test", "DEF")  # type: ignore[no-untyped-call] # torch's

    def write(keys: Tensor, values: Tensor, at_T: Tensor, k_HTD: Tensor, v_HTD: Tensor) -> None:
        keys.index_copy_(1, at_T, k_HTD)
        values.index_copy_(1, at_T, v_HTD)

    library.define("write(Tensor k, Tensor v, Tensor at, Tensor nk, Tensor nv) -> ()")  # type: ignore[no-untyped-call] # as above
    library.impl("write", write, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call] # as above
    library.impl("write", lambda *_: None, "Meta")  # type: ignore[no-untyped-call] # as above
    yield torch.ops.steadyframe_probe_test.write
    library._destroy()  # type: ignore[no-untyped-call] # as above


def test_a_write_that_is_not_declared_fails_when_compiled_and_only_then(
    undeclared: Callable[..., None],
) -> None:
    subject = faults.with_op(faults.undeclared_write(undeclared))
    assert _failed(_found(subject)) == set()
    assert {*Phase} <= _failed(_found(subject, "aot_eager"))


@pytest.mark.parametrize(
    ("phase", "flags", "precision"),
    [
        (Phase.FILL, {}, Precision.FLOAT32),
        (Phase.FILL, _FP8, Precision.FLOAT32),
        (Phase.WRAP, _FP8, Precision.FP8),
        (Phase.FLIP, _FP8, Precision.FP8),
        (Phase.RESET, {"kv_cache": "recompute"}, Precision.FLOAT32),
        (Phase.RESET, {"kv_cache": "recompute", "position_reset": "rebuild"}, Precision.EXACT),
        (Phase.FLIP, {"kv_cache": "recompute", "position_reset": "rebuild"}, Precision.FLOAT32),
    ],
)
def test_each_phase_is_held_to_what_its_flags_promise(
    phase: Phase, flags: dict[str, str], precision: Precision
) -> None:
    full = flag_registry.fallback() | flags
    assert bounds.bound(phase, full, MODELS["tiny"]) == bounds.TABLE[precision]


def test_production_s_element_is_held_to_bfloat16() -> None:
    flags = flag_registry.fallback()
    found = bounds.bound(Phase.WRAP, flags, MODELS["full"])
    assert found == bounds.TABLE[Precision.BFLOAT16]
