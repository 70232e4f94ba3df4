"""Owns the rank and decoder processes: launches them, numbers their steps, flips their flags.

What is imported in the supervisor (`api`, `engine`) must not import torch.
"""
