"""The application of `tests/api`, for those who wish it ill; and a count of what is tried on it."""

import re

import pytest

from tests import tally
from tests.api.conftest import plane, sqlite_plane

__all__ = ["plane", "sqlite_plane"]
_PASSING = re.compile(r"(\d+) passing,")


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Note how many examples of hypothesis the test has passed."""
    told = getattr(item, "hypothesis_statistics", None)
    if isinstance(told, str):
        num_passed = sum(int(found) for found in _PASSING.findall(told))
        tally.note("fuzz_examples", test=item.nodeid, count=num_passed)
