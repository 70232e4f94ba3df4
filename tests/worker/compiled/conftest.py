"""The compiler in the process of the tests: its code is kept for a run, its graphs for a test."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

with warnings.catch_warnings():
    # Without numpy torch warns once when it is imported; every other warning stays an error.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch
    import torch._dynamo

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def compiler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one test has compiled the next one loads."""
    with warnings.catch_warnings():
        # torch's compiler imports a module of torch that torch has given up.
        warnings.filterwarnings("ignore", "`torch.jit.script_method` is dep", DeprecationWarning)
        import torch.utils.mkldnn  # noqa: F401
    return tmp_path_factory.mktemp("compiler")


@pytest.fixture(autouse=True)
def _no_compiled_code_is_handed_on() -> Iterator[None]:
    """Graphs are kept by code object: without this, tests would share one recompile limit."""
    held = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    if held is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = held
