"""Sizes of the code: lines by package, and how long functions are."""

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controlplane", "worker", "migrations", "tests")


def sizes() -> dict[str, Any]:
    """Lines by package, and median and 90th percentile of the lines of a function."""
    lengths = sorted(length for name in PACKAGES[:2] for length in _function_lengths(name))
    return {
        "lines": {name: _num_lines(name) for name in PACKAGES},
        "num_functions": len(lengths),
        "function_lines_median": statistics.median(lengths),
        "function_lines_p90": statistics.quantiles(lengths, n=10)[-1],
    }


def _num_lines(package: str) -> int:
    return sum(len(path.read_text().splitlines()) for path in _files(package))


def _function_lengths(package: str) -> Iterator[int]:
    """From `def` to the last line, decorators and docstring included."""
    for path in _files(package):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno:
                yield node.end_lineno - node.lineno + 1


def _files(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))
