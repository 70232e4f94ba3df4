"""How many graphs there are: a constant of the configuration, whatever a day brings."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters

from tests.worker.compiled import courses
from tests.worker.compiled.life import MODEL, Course, latents
from worker import flags as flag_registry
from worker.cache.variants import KvCache
from worker.model import block, execution, self_test, weights
from worker.model.execution import (
    EAGER,
    Compiled,
    Eager,
    ExecutionRefusedError,
    UnseenInputsError,
)
from worker.model.self_test import Subject
from worker.ops import pre_attention

_STEADY = 3  # `entered`, `left` and `fused`
_LENGTHS = range(1, 201)


def _traced() -> Compiled:
    return Compiled(backend="aot_eager", folder=None)


def test_two_hundred_prompt_lengths_make_no_graph() -> None:
    """The first forward is eager; torch's own count sees every graph there is."""
    model = replace(MODEL, first_forward_bounds=(1, 200))
    run = _traced()
    counters.clear()
    course = Course(num_steps=1, flags={"pre_attention": "fused"})
    latents(course, run, model=model)
    assert run.num_graphs == counters["stats"]["unique_graphs"] == _STEADY
    run.seal()
    for length in _LENGTHS:
        latents(replace(course, length=length), run, model=model)
    assert run.num_graphs == counters["stats"]["unique_graphs"] == _STEADY


def test_a_part_compiled_for_each_prompt_would_be_seen() -> None:
    """The negative control: the same count, with the steady parts given prompts."""
    run = _traced()
    left = run.form(block.left)
    with torch.inference_mode():
        for number, length in enumerate((3, 5, 8), start=1):
            left(torch.ones(length, 4), torch.ones(length, 4), torch.ones(4))
            assert run.num_graphs == number


def test_flips_make_no_graph_after_the_start() -> None:
    """What the self-test compiles at the start is all that sessions need, with more blocks too."""
    run = _traced()
    with torch.inference_mode():
        held = weights.draw(MODEL, rank=0, num_ranks=1)
        subject = Subject(model=MODEL, weights=held, num_ranks=1, execution=run)
        for kv_cache in KvCache:
            for name, form in (
                ("unfused", pre_attention.unfused),
                ("fused", pre_attention.fused),
            ):
                self_test.check(subject, kv_cache, pre_attention=form, name=name)
    num_graphs = run.num_graphs
    run.seal()
    latents(courses.FLIPS, run)
    assert run.num_graphs == num_graphs == _STEADY + 1


def test_inputs_that_nothing_at_the_start_had_are_refused_by_the_name_of_the_part() -> None:
    """A stutter of seconds in the middle of a stream is no answer."""
    run = _traced()
    left = run.form(block.left)
    with torch.inference_mode():
        left(torch.ones(3, 4), torch.ones(3, 4), torch.ones(4))
        run.seal()
        left(torch.ones(3, 4), torch.ones(3, 4), torch.ones(4))
        with pytest.raises(UnseenInputsError, match=r"^left was given inputs that nothing"):
            left(torch.ones(5, 4), torch.ones(5, 4), torch.ones(4))
    assert run.num_graphs == 1


def test_eager_hands_every_part_back_untouched() -> None:
    """Flag off is untouched code."""
    assert EAGER.form(block.entered) is block.entered
    assert EAGER.num_graphs == 0
    assert isinstance(execution.build("eager", backend="inductor", folder=None), Eager)


def test_cuda_graphs_are_refused_where_they_cannot_be_recorded() -> None:
    with pytest.raises(ExecutionRefusedError) as refused:
        execution.build("graphs", backend="inductor", folder=None)
    assert str(refused.value).startswith("execution 'graphs' records CUDA graphs and needs a CUDA")
    assert str(refused.value).endswith("; allowed: eager, compiled")


def test_a_compiler_without_a_folder_is_refused() -> None:
    """It would write into the temporary folder of the system, for good."""
    with pytest.raises(ExecutionRefusedError, match="needs a folder for its code and has none"):
        execution.build("compiled", backend="inductor", folder=None)


def test_every_variant_of_execution_is_built_or_refused(tmp_path: Path) -> None:
    """A new one without a line here would be taken for CUDA graphs."""
    assert flag_registry.EXECUTION.variants == ("eager", "compiled", "graphs")
    assert isinstance(execution.build("compiled", backend="aot_eager", folder=tmp_path), Compiled)


_EAGER_RANK = """
import sys
import worker.engine.forkserver
from tests.worker.compiled.life import Course, latents
latents(Course(num_steps=4, flags={"pre_attention": "fused"}))
found = [name for name in ("torch._dynamo", "torch._inductor") if name in sys.modules]
assert not found, found
"""


def test_an_eager_rank_never_imports_the_compiler() -> None:
    """Seconds of every start and tens of megabytes of every rank, for nothing."""
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::UserWarning"}
    subprocess.run([sys.executable, "-c", _EAGER_RANK], check=True, env=environment)
