"""Tensors in the process of the tests."""

from tests.worker import tensors  # noqa: F401 - what it does at its import
