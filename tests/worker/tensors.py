"""Tensors in the process of the tests: one thread, and the one warning of an import kept quiet."""

import warnings

with warnings.catch_warnings():
    # Without numpy torch warns once when it is imported; every other warning stays an error.
    warnings.filterwarnings("ignore", "Failed to initialize NumPy", UserWarning)
    import torch

torch.set_num_threads(1)
