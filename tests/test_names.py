"""What a test is called is the same in every process that collects it.

Two processes that run the tests between them compare their lists. A value in the name that holds
the time of its making is another in each of them, whenever they collect in two different seconds.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
# Each makes another value at another time; gzip writes the time into its header unless told one.
CHANGING = {"compress", "now", "utcnow", "today", "time", "monotonic", "uuid4", "random"}


@pytest.mark.parametrize(
    "file", sorted(TESTS.rglob("test_*.py")), ids=lambda file: str(file.relative_to(TESTS))
)
def test_no_value_in_the_name_of_a_test_holds_the_time(file: Path) -> None:
    changing = [call.lineno for call in _calls_in_names(ast.parse(file.read_text()))]
    assert not changing, f"lines {changing} of {file.name}"


def _calls_in_names(tree: ast.Module) -> Iterator[ast.Call]:
    """Calls in arguments of `parametrize` that give something else each time."""
    decorators = (
        decorator
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call) and "parametrize" in ast.unparse(decorator.func)
    )
    for decorator in decorators:
        for call in ast.walk(decorator):
            if isinstance(call, ast.Call) and _changes(call):
                yield call


def _changes(call: ast.Call) -> bool:
    is_dated = not any(keyword.arg == "mtime" for keyword in call.keywords)
    return _name(call) in CHANGING and is_dated


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ast.unparse(call.func)
