"""Tensors in the process of the tests, and no compiled code handed on."""

from tests.worker import tensors  # noqa: F401 - what it does at its import
from tests.worker.graphs import no_compiled_code_is_handed_on

__all__ = ["no_compiled_code_is_handed_on"]
