"""A compiler in the process of the tests."""

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    # As in `tensors`: the compiler's import comes upon numpy too.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch
    import torch._dynamo


@pytest.fixture(autouse=True)
def no_compiled_code_is_handed_on() -> Iterator[None]:
    """Graphs are kept by code object: without this, tests would share one recompile limit."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
