"""The two faults that only a compiler shows: right in every eager test, and seen by ours."""

import pytest
import torch

from tests.worker.compiled.life import FIRST_RESET, MODEL, Course, latents, worst
from worker.cache.variants import KvCache
from worker.engine.session import PRE_ATTENTION
from worker.model import self_test, weights
from worker.model.execution import Compiled, TooManyGraphsError
from worker.model.self_test import SelfTestError, Subject

_FAULTS = ("fused_undeclared", "fused_counting")


def _course(form: str) -> Course:
    return Course(num_steps=FIRST_RESET + 2, flags={"pre_attention": form})


def _check(name: str, kv_cache: KvCache) -> None:
    with torch.inference_mode():
        subject = Subject(
            model=MODEL,
            weights=weights.draw(MODEL, rank=0, num_ranks=1),
            num_ranks=1,
            execution=Compiled(backend="aot_eager", folder=None),
        )
        self_test.check(subject, kv_cache, pre_attention=PRE_ATTENTION[name], name=name)


@pytest.mark.parametrize("name", _FAULTS)
def test_no_eager_test_finds_a_fault(name: str) -> None:
    """Bit for bit what the right form gives, through wrap and reset."""
    assert worst(latents(_course(name)), latents(_course("fused"))) == 0.0


def test_a_write_that_is_not_declared_changes_the_video_when_compiled() -> None:
    """The grid would fail on it: by far more than its bound."""
    run = Compiled(backend="aot_eager", folder=None)
    course = _course("fused_undeclared")
    assert worst(latents(course, run), latents(course)) > 0.05


def test_a_counter_of_python_ends_at_the_limit_of_torch_when_compiled() -> None:
    """Never silently eager: the parts are whole graphs or an error."""
    run = Compiled(backend="aot_eager", folder=None)
    with pytest.raises(TooManyGraphsError, match="needs another graph in every call"):
        latents(_course("fused_counting"), run)
    assert run.num_graphs > 8


@pytest.mark.parametrize(
    ("name", "kv_cache", "sentence"),
    [
        ("fused_undeclared", KvCache.WRITE_TIME_BF16, "is off by 0.06"),
        ("fused_undeclared", KvCache.WRITE_TIME_FP8, "is off by 0.06"),
        ("fused_counting", KvCache.WRITE_TIME_BF16, "needed 6 graphs by step 0"),
    ],
)
def test_the_self_test_names_the_fault(name: str, kv_cache: KvCache, sentence: str) -> None:
    """`test_graphs` has it pass everything that is right."""
    with pytest.raises(SelfTestError) as found:
        _check(name, kv_cache)
    assert str(found.value).startswith(f"compiled {name} with {kv_cache.value} {sentence}")
