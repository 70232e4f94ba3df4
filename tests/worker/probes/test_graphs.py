"""The number of graphs after warm-up: constant for right code, and each kind of growth is found."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.worker.probes import faults
from worker.model.execution import Compiled, Eager
from worker.probes import compiled, graphs
from worker.probes.check import Check, Verdict
from worker.probes.subject import Subject


def _found(subject: Subject, backend: str) -> Check:
    form = compiled.subject_by(backend, subject, folder=Path("unused"))
    return graphs.run(form, name=backend, seed=7)


def test_eager_has_none_and_stays_there() -> None:
    found = _found(faults.subject(), "eager")
    assert (found.verdict, found.value) == (Verdict.PASS, 0)
    assert "the 0 after warm-up, over 50 prompt lengths" in found.detail


@pytest.mark.parametrize("kv_cache", ["write_time_bf16", "write_time_fp8"])
def test_compiled_has_some_and_stays_there(kv_cache: str) -> None:
    """Over 50 lengths, resets and flips between two ops."""
    subject = faults.subject(kv_cache=kv_cache, pre_attention="fused")
    execution = Compiled(backend="aot_eager", folder=None)
    found = graphs.run(replace(subject, execution=execution), name="aot_eager", seed=7)
    assert (found.verdict, found.value) == (Verdict.PASS, 0)
    assert execution.num_graphs >= 2


def test_a_graph_for_each_prompt_length_is_found() -> None:
    execution = Compiled(backend="aot_eager", folder=None)
    product = faults.ProductByLength(execution.form)
    subject = replace(faults.subject(), execution=execution, reduce=product)
    found = graphs.run(subject, name="aot_eager", seed=7)
    assert found.verdict is Verdict.FAIL


def test_a_cursor_that_is_compiled_in_is_found() -> None:
    assert _found(faults.with_op(faults.Counting()), "aot_eager").verdict is Verdict.FAIL


def test_growth_is_told_by_how_much() -> None:
    """Without a limit of torch in between: so many graphs more each time one looks."""

    class Growing(Eager):
        num_asked = 0

        @property
        def num_graphs(self) -> int:  # type: ignore[override] # of a class, here of an instance
            self.num_asked += 1
            return 5 * self.num_asked

    subject = replace(faults.subject(), execution=Growing())
    found = graphs.run(subject, name="eager", seed=7)
    assert (found.verdict, found.value, found.bound) == (Verdict.FAIL, 5, 0)
