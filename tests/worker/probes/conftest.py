"""Tensors in the process of the tests: one thread, and no compiled code handed on."""

import warnings
from collections.abc import Iterator

import pytest

with warnings.catch_warnings():
    # Without numpy torch warns once when it is imported; every other warning stays an error.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch
    import torch._dynamo

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _no_compiled_code_is_handed_on() -> Iterator[None]:
    """Graphs are kept by code object: without this, tests would share one recompile limit."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
