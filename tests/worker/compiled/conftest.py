"""The compiler in the process of the tests: its code is kept for a run, its graphs for a test."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker import tensors  # noqa: F401 - what it does at its import
from tests.worker.graphs import no_compiled_code_is_handed_on

__all__ = ["compiler_folder", "no_compiled_code_is_handed_on"]


@pytest.fixture(scope="session")
def compiler_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What one test has compiled the next one loads."""
    with warnings.catch_warnings():
        # torch's compiler imports a module of torch that torch has given up.
        warnings.filterwarnings("ignore", "`torch.jit.script_method` is dep", DeprecationWarning)
        import torch.utils.mkldnn  # noqa: F401
    return tmp_path_factory.mktemp("compiler")


@pytest.fixture(autouse=True)
def _the_folder_of_a_test_is_its_own() -> Iterator[None]:
    """The compiler reads it from the environment, where it stays."""
    held = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    yield
    os.environ.pop("TORCHINDUCTOR_CACHE_DIR", None)
    if held is not None:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = held
