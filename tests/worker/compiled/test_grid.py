"""The grid: every way to run a session's steps gives the session that eager gives."""

from pathlib import Path

import pytest

from tests.worker.compiled import courses
from tests.worker.compiled.life import Course, latents, split_latents, worst
from worker.model.execution import EAGER, Compiled

_ALL = courses.courses()
# g++ took 25 s of a processor for the four graphs; 147 s passed once on a machine with much to do.
_PATIENT = pytest.mark.timeout(900)
_GRAPHS = 4  # `entered`, `left`, and `fused` into float32 and into e4m3


def _rows(*, few: bool) -> pytest.MarkDecorator:
    names = [name for name in _ALL if (name in courses.FEW) is few]
    return pytest.mark.parametrize("course", [_ALL[name] for name in names], ids=names)


def _check(course: Course, execution: Compiled) -> None:
    expected = latents(course)
    found = latents(course, execution)
    assert worst(found, expected) <= courses.bound(course)
    assert 0 < execution.num_graphs <= _GRAPHS


@_rows(few=True)
def test_traced_gives_what_eager_gives(course: Course) -> None:
    """`aot_eager` takes a graph apart and together as a compiler does, without its seconds."""
    _check(course, Compiled(backend="aot_eager", folder=None))


@pytest.mark.slow
@_rows(few=False)
def test_traced_gives_what_eager_gives_in_every_row(course: Course) -> None:
    _check(course, Compiled(backend="aot_eager", folder=None))


@_PATIENT
def test_compiled_gives_what_eager_gives(compiler_folder: Path) -> None:
    """One row, which has all of the others in it: each graph costs the compiler seconds."""
    _check(_ALL["flip"], Compiled(backend="inductor", folder=compiler_folder))


@_PATIENT
@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in _ALL if name != "flip"])
def test_compiled_gives_what_eager_gives_in_every_row(name: str, compiler_folder: Path) -> None:
    _check(_ALL[name], Compiled(backend="inductor", folder=compiler_folder))


@pytest.mark.parametrize("num_ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_split_and_traced_gives_what_eager_gives_on_the_same_ranks(num_ranks: int) -> None:
    """The sum between the parts is not compiled, so it takes its inputs as ever."""
    course = _ALL["flip"]
    executions = [Compiled(backend="aot_eager", folder=None) for _ in range(num_ranks)]
    whole = split_latents(course, [EAGER] * num_ranks)
    for found, expected in zip(split_latents(course, executions), whole, strict=True):
        assert worst(found, expected) <= courses.bound(course)
    assert {execution.num_graphs for execution in executions} == {_GRAPHS}
